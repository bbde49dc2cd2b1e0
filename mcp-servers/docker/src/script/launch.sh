# Starts a script in the container, or finds the one that an earlier attempt started; waits for its end; prints the
# result. The script comes by standard input.
#
# $1 key  $2 digest of the call  $3 bytes of the script  $4 limit in seconds  $5 working directory  $6 bytes to print of
# each stream  $7 code of supervise.sh  $8 code of stop.sh
#
# Standard output: lines of "name value", an empty line, the script's standard output, and a last line with the key.
# Standard error: the script's standard error, and the same last line.
exec 3>&2 2>/dev/null
mask=$(umask)
umask 077
calls=/var/lib/gavel/calls
dir=$calls/$1

fault() {
  printf 'fault %s\n' "$*"
  exit 0
}

pause() {
  sleep "$1" || sleep 1
}

for tool in setsid dd mkfifo head tail wc sleep cat mv rm; do
  command -v "$tool" >/dev/null || fault missing "$tool"
done
mkdir -p "$calls" && [ -w "$calls" ] || fault storage

prepare() {
  mkdir "$new" && head -c "$2" >"$new/script" || return 1
  [ "$(($(wc -c <"$new/script")))" -eq "$2" ] || fault input
  printf '%s' "$1" >"$new/digest" || return 1
  # Room for what is noted later: it is written over this, so that a full disk does not prevent it.
  for note in super began pid stop restart full end; do
    printf '%64s' '' >"$new/$note" || return 1
  done
  : >"$new/out" && : >"$new/err" && mkfifo "$new/1" "$new/2" || return 1
  # Room for what a script writes about a full disk, where the image and the file system can reserve it.
  for name in out err; do fallocate -n -l 16384 "$new/$name"; done
  return 0
}

if [ ! -d "$dir" ]; then
  new=$calls/.new.$1.$$
  if ! prepare "$2" "$3"; then
    rm -rf "$new"
    fault storage
  fi
  # Only one directory takes the name, whole; the next one would be moved into it.
  if mv "$new" "$dir" && [ ! -d "$dir/${new##*/}" ]; then
    GAVEL_SUPERVISOR=$1 setsid /bin/sh -c "$7" gavel "$1" "$dir" "$4" "$5" "$8" "$mask" "$6" \
      </dev/null >/dev/null 2>&1 3>&- &
  fi
  rm -rf "$new" "$dir/${new##*/}"
fi

# Sets `value` to what was noted; false if nothing was.
noted() {
  value=
  read -r value <"$dir/$1"
  [ -n "$value" ]
}

# Whether the supervisor's process is still that of this call. What separates variables is lost in reading.
is_alive() {
  noted super || return 1
  while read -r line || [ -n "$line" ]; do
    case $line in *GAVEL_SUPERVISOR="$1"*) return 0 ;; esac
  done <"/proc/$value/environ"
  return 1
}

# A container that was stopped and started again has no supervisor any more, and the script is not run a second time.
await_end() {
  round=0
  while :; do
    state=
    read -r state code ended outs errs <"$dir/end"
    case $state in end | never) return ;; esac
    if noted super; then
      if [ $((round % 10)) -eq 5 ] && ! is_alive "$1"; then
        read -r state code ended outs errs <"$dir/end"
        [ "$state" = end ] || state=lost
        return
      fi
    elif [ "$round" -ge 100 ] && mkdir "$dir/go"; then
      printf 'never\n' 1<>"$dir/end"
    fi
    if [ "$round" -lt 5 ]; then pause 0.02; elif [ "$round" -lt 60 ]; then pause 0.1; else pause 0.3; fi
    round=$((round + 1))
  done
}

print_note() {
  noted "$1"
  printf '%s %s\n' "$1" "$value"
}

print_stream() {
  if [ "$state" = end ]; then
    head -c "$2" "$dir/$1" | tail -c "$3"
  else
    tail -c "$3" "$dir/$1"
  fi
}

await_end "$1"
printf 'state %s\ncode %s\nended %s\n' "$state" "$code" "$ended"
for name in digest began stop restart full; do print_note "$name"; done
for name in out err; do
  bytes=$(($(wc -c <"$dir/$name")))
  [ -e "$dir/$name.cut" ] && bytes=$((bytes + 1073741824))
  printf '%s %s\n' "$name" "$bytes"
done
if [ -f /run/gavel/git-credentials ]; then
  head -c 65536 /run/gavel/git-credentials | while read -r line; do printf 'secret %s\n' "$line"; done
fi
printf '\n'
print_stream out "${outs:-0}" "$6"
printf '\ngavel end %s\n' "$1"
print_stream err "${errs:-0}" "$6" >&3
printf '\ngavel end %s\n' "$1" >&3
