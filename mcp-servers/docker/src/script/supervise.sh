# Runs one script, keeps the end of what it writes, and notes how it ended. A process of its own: it outlives the
# attempt that started it.
#
# $1 key  $2 directory of the call  $3 limit in seconds  $4 working directory  $5 code of stop.sh
# $6 umask of the script  $7 bytes to keep of each stream
key=$1
dir=$2
keep=$7
printf '%s\n' $$ 1<>"$dir/super"
# An attempt that gave up waiting takes this first.
mkdir "$dir/go" || exit 0
read -r began rest </proc/uptime
printf '%s\n' "$began" 1<>"$dir/began"

pause() {
  sleep "$1" || sleep 1
}

# Appends what it reads, and cuts the file to its end whenever it has grown. If the disk is full, it notes that and reads
# to the end without keeping anything, so that the script is not blocked.
collect() {
  size=0
  while [ ! -e "$dir/done" ]; do
    dd bs=65536 count=64 >>"$dir/$1"
    case $? in
      0) ;;
      # It could not write. When it is killed, it has another status.
      1)
        printf 'full\n' 1<>"$dir/full"
        break
        ;;
      *) break ;;
    esac
    now=$(($(wc -c <"$dir/$1")))
    [ "$now" -gt "$size" ] || break
    size=$now
    if [ "$size" -gt 8388608 ] && [ ! -e "$dir/done" ]; then
      : >"$dir/$1.cut"
      tail -c "$keep" "$dir/$1" >"$dir/$1.tail" && mv "$dir/$1.tail" "$dir/$1" && size=$keep
    fi
  done
  cat >/dev/null
  : >"$dir/$1.eof"
}

collect out <"$dir/1" &
collect err <"$dir/2" &

(
  umask "$6"
  unset GAVEL_SUPERVISOR
  export CI=1 GIT_TERMINAL_PROMPT=0 GAVEL_CALL="$key"
  exec </dev/null >"$dir/1" 2>"$dir/2"
  cd "$4" || exit 125
  exec setsid /bin/sh "$dir/script"
) &
pid=$!
printf '%s\n' "$pid" 1<>"$dir/pid"

# For the case that the server is gone at the script's limit. The server itself acts earlier.
setsid /bin/sh -c 'sleep "$1" && exec /bin/sh -c "$2" gavel "$3" "$4" timeout' \
  gavel "$(($3 + 10))" "$5" "$key" "$dir" </dev/null >/dev/null 2>&1 &
watchdog=$!

wait "$pid"
code=$?
# What the script left in its group has one second more.
round=0
while kill -0 -"$pid" && [ "$round" -lt 10 ]; do
  pause 0.1
  round=$((round + 1))
done
kill -KILL -"$pid"
# Whether a process that left the group still writes to a stream.
is_held() {
  for fd in /proc/[0-9]*/fd/[12]; do
    if [ "$fd" -ef "$dir/1" ] || [ "$fd" -ef "$dir/2" ]; then return 0; fi
  done
  return 1
}
# It does not delay the end much. Without it the streams end for sure, however late their readers begin on a busy machine.
round=0
while [ ! -e "$dir/out.eof" ] || [ ! -e "$dir/err.eof" ]; do
  if [ "$round" -ge 500 ] || { [ "$round" -ge 50 ] && is_held; }; then break; fi
  pause 0.02
  round=$((round + 1))
done
: >"$dir/done"
kill -KILL -"$watchdog"
read -r now rest </proc/uptime
# In one write.
printf 'end %s %s %s %s\n' "$code" "$now" "$(($(wc -c <"$dir/out")))" "$(($(wc -c <"$dir/err")))" 1<>"$dir/end"
