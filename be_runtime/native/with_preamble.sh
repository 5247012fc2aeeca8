#!/bin/sh
# Compile the output of cudafe++, and use a precompiled header for its beginning if the text is equal.
#
#   with_preamble.sh FOLDER WHOLE COMPILER FLAG...
#
# FOLDER has preamble.h, its compiled form preamble.h.gch, its size in bytes and pragmas.h; WHOLE is cudafe++'s output.
# In any unexpected case, such as a missing program, WHOLE is compiled as it is. Each program takes time to start, so
# the script runs few.
set -u
LC_ALL=C
folder=$1
whole=$2
shift 2
# A preloaded library slows the start of each program, so only the compiler gets it.
preload=${LD_PRELOAD-}
unset LD_PRELOAD
rest=$whole.rest/${whole##*/} # the object records the file's name

# The first line names the source; the preamble follows.
read -r size < "$folder/size" &&
  read -r first < "$whole" &&
  cmp -s -n "$size" -i "$((${#first} + 1)):0" "$whole" "$folder/preamble.h" &&
  mkdir -p "${rest%/*}" &&
  { printf '%s\n' "$first" && tail -c "+$((${#first} + size + 2))" "$whole"; } > "$rest" &&
  export LD_PRELOAD="$preload" &&
  exec "$@" -iquote "${whole%/*}" -include "$folder/preamble.h" -include "$folder/pragmas.h" -x c++ "$rest"
export LD_PRELOAD="$preload"
exec "$@" -x c++ "$whole"
