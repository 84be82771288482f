#!/bin/sh
# Every week: new facts join the run, the promise is watched, the service takes the new run.
#
#   week.sh RUN FACTS STATE [ADDRESS]        # 0 6 * * 1  week.sh /srv/unkgcp/run /srv/new/week.tsv /srv/unkgcp/watch.json
#
# When the alarm goes off the sentence is mailed to $MAILTO; $TOKEN is the token of the service at ADDRESS.
set -eu
run=$1 facts=$2 state=$3 address=${4:-http://127.0.0.1:8000}

unkgcp update "$run" "$facts"

status=0
said=$(unkgcp monitor "$run" "$facts" --state "$state") || status=$?
case $status in
    0) ;;
    3) printf '%s\n' "$said" | grep '^alarm: ' | mail -s "UnKGCP: the promise of $run" "${MAILTO:?who gets the alarm}" ;;
    *) exit "$status" ;;
esac

curl --fail --silent --show-error --request POST --header "Authorization: Bearer ${TOKEN:?}" "$address/v1/reload"
