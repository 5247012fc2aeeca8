#!/bin/sh
# Preprocess a source without reading its first headers again: their text and macros are kept.
#
#   with_kept_headers.sh FOLDER PHASE SOURCE OUTPUT COMPILER FLAG...
#
# FOLDER has headersPHASE, the text of the headers, headersPHASE.macros, and read.d, the list of their files. In any
# unexpected case, such as a message about the source, everything is preprocessed. Each program takes time to start, so
# the script runs few.
set -u
LC_ALL=C
kept=$1/headers$2
read=$1/read.d
source=$3
output=$4
shift 4
own=$output.own

# A preloaded library slows the start of each program, so only the compiler gets it.
preload=${LD_PRELOAD-}
unset LD_PRELOAD

# The macros are linked beside the output while the compiler reads them, so that the list of read files omits them. The
# first line names the source; the kept text goes between it and the source's own text, which begins with such a line.
[ -r "$kept" ] && [ -r "$read" ] && ln -s "$kept.macros" "$own.macros" &&
  LD_PRELOAD=$preload "$@" -imacros "$own.macros" -o "$own" 2> "$own.said" && [ ! -s "$own.said" ] &&
  sed -e '1b' -e "\\|^# 1 \"$source\"|,\$b" -e d "$own" > "$own.text" &&
  { read -r first && read -r second; } < "$own.text" &&
  case $second in "# 1 \"$source\""*) ;; *) false ;; esac &&
  { printf '%s\n' "$first" && cat "$kept" && sed 1d "$own.text"; } > "$output" &&
  cat "$read" >> "$output.d" &&
  exit 0
export LD_PRELOAD="$preload"
exec "$@" -o "$output"
