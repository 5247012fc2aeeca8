#!/bin/sh
# Compiles what cudafe++ made, its beginning from a precompiled header where it is the same text.
#
#   with_preamble.sh FOLDER WHOLE COMPILER FLAG...
#
# FOLDER has preamble.h, its compiled form preamble.h.gch, its size in bytes and pragmas.h; WHOLE is cudafe++'s output.
# Anything unexpected, a missing program too, compiles WHOLE as it is. Few programs are run, since each takes a while.
set -u
LC_ALL=C
folder=$1
whole=$2
shift 2
# What watches the compiler costs each program it is loaded into a while, so only the compiler gets it.
preload=${LD_PRELOAD-}
unset LD_PRELOAD
rest=$whole.rest/${whole##*/} # the object records the file's name

# The first line names the source; the preamble is what follows.
read -r size < "$folder/size" &&
  read -r first < "$whole" &&
  cmp -s -n "$size" -i "$((${#first} + 1)):0" "$whole" "$folder/preamble.h" &&
  mkdir -p "${rest%/*}" &&
  { printf '%s\n' "$first" && tail -c "+$((${#first} + size + 2))" "$whole"; } > "$rest" &&
  export LD_PRELOAD="$preload" &&
  exec "$@" -iquote "${whole%/*}" -include "$folder/preamble.h" -include "$folder/pragmas.h" -x c++ "$rest"
export LD_PRELOAD="$preload"
exec "$@" -x c++ "$whole"
