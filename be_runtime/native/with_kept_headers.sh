#!/bin/sh
# Preprocesses a source without reading the headers that it begins with, whose text and macros are kept.
#
#   with_kept_headers.sh FOLDER PHASE SOURCE OUTPUT COMPILER FLAG...
#
# FOLDER has headersPHASE, their text, headersPHASE.macros, and read.d, which files that took. Anything unexpected, a
# message about the source too, preprocesses everything. Few programs are run, since each takes a while.
set -u
LC_ALL=C
kept=$1/headers$2
read=$1/read.d
source=$3
output=$4
shift 4
own=$output.own

# What watches the compiler costs each program it is loaded into a while, so only the compiler gets it.
preload=${LD_PRELOAD-}
unset LD_PRELOAD

# The macros lie beside the output while they are read, so that the list of files read doesn't have them. The first line
# names the source; the kept text is what follows up to the source's own, which begins with such a line again.
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
