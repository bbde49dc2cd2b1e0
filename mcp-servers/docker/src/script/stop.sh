# Ends a running script: TERM to its group, two seconds later KILL, then KILL to all that it started.
#
# $1 key  $2 directory of the call  $3 why: timeout or cancelled  $4 "restarted" after a restart of the container
#
# Prints "ended" if the script had ended by itself or now never begins, "stopped" if nothing of it is left, "left" if
# something is.
exec 2>/dev/null
key=$1
dir=$2

pause() {
  sleep "$1" || sleep 1
}

# Sets `value` to what was noted; false if nothing was.
noted() {
  value=
  read -r value <"$dir/$1"
  [ -n "$value" ]
}

# What has not begun never begins: this takes the call's name, or what the supervisor takes first.
if [ ! -d "$dir" ]; then
  new=${dir%/*}/.stop.$key.$$
  mkdir "$new" && mkdir "$new/go" && : >"$new/out" && : >"$new/err" && printf '%s\n' "$3" >"$new/stop" &&
    printf 'never\n' >"$new/end" && mv "$new" "$dir"
  rm -rf "$new" "$dir/${new##*/}"
elif mkdir "$dir/go"; then
  printf '%s\n' "$3" 1<>"$dir/stop"
  printf 'never\n' 1<>"$dir/end"
fi
noted end
case $value in
  end* | never)
    echo ended
    exit 0
    ;;
esac
# Over the room that is there: the disk may be full.
[ -z "$4" ] || printf '%s\n' "$4" 1<>"$dir/restart"
noted stop || printf '%s\n' "$3" 1<>"$dir/stop"
round=0
while ! noted pid && [ "$round" -lt 50 ]; do
  pause 0.1
  round=$((round + 1))
done
pid=$value
# Sets `mark` to whose a process is: gavel's own, this call's, another call's, or empty. Starts no process, and does not
# need what separates the variables, which is lost in reading.
mark_of() {
  mark=
  while read -r line || [ -n "$line" ]; do
    case $line in
      *GAVEL_SUPERVISOR=*) mark=gavel ;;
      *GAVEL_CALL="$key"*) mark=own ;;
      *GAVEL_CALL=*) mark=other ;;
    esac
    [ -z "$mark" ] || return 0
  done <"/proc/$1/environ"
}

# Sets `now` in hundredths of a second since the start of the machine.
look_at_clock() {
  read -r now rest </proc/uptime
  now=${now%.*}${now#*.}
}

# After a restart of the container the number may be that of another process.
mark=
[ -z "$pid" ] || mark_of "$pid"
if [ "$mark" = own ]; then
  kill -TERM -"$pid"
  look_at_clock
  until=$((now + 200))
  while kill -0 -"$pid" && [ "$now" -lt "$until" ]; do
    pause 0.1
    look_at_clock
  done
  kill -KILL -"$pid"
fi

began=
read -r began <"$dir/began"
began=${began%.*}${began#*.}

# Sets `strays` to the processes of this call: those with its key, and those that started after it and belong neither to
# another call nor to gavel. The latter only if they were there in the round before: a process that is just starting
# has no environment yet.
look() {
  unknown=
  strays=
  for stat in /proc/[0-9]*/stat; do
    process=${stat#/proc/}
    process=${process%/stat}
    [ "$process" != 1 ] && [ "$process" != $$ ] || continue
    line=
    read -r line <"$stat" || continue
    set -- ${line##*) }
    case $1 in Z | X) continue ;; esac
    [ -n "$began" ] && [ "${20}" -ge "$began" ] || continue
    mark_of "$process"
    case $mark in
      own) strays="$strays $process" ;;
      '')
        unknown="$unknown $process"
        case "$before " in *" $process "*) strays="$strays $process" ;; esac
        ;;
    esac
  done
  before=$unknown
}

before=
look_at_clock
until=$((now + 500))
while [ "$now" -lt "$until" ]; do
  look
  if [ -z "$strays" ] && [ -z "$unknown" ]; then
    echo stopped
    exit 0
  fi
  [ -z "$strays" ] || kill -KILL $strays
  pause 0.1
  look_at_clock
done
# The server restarts the container, which nothing survives.
echo left
