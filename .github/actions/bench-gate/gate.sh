#!/usr/bin/env bash
# Measures EXPERIMENT with BENCH_RUN, then asks the gate: its summary, annotations and exit
# code are those of the step. ROUNDS and JUNIT may be empty.
set -euo pipefail
: "${BENCH_RUN:?the program}" "${EXPERIMENT:?the experiment file}"

results=$(mktemp -d "${RUNNER_TEMP:-/tmp}/bench-gate.XXXXXX")
arguments=(run "$EXPERIMENT" --no-report --results "$results")
if [[ -n ${ROUNDS:-} ]]; then
    arguments+=(--rounds "$ROUNDS")
fi
"$BENCH_RUN" "${arguments[@]}"

records=("$results"/*/)
record=${records[0]%/}
gate=(gate "$record")
if [[ -n ${JUNIT:-} ]]; then
    gate+=(--junit "$JUNIT")
fi
code=0
"$BENCH_RUN" "${gate[@]}" || code=$?
case $code in
    0) outcome=pass ;;
    10) outcome=regressed ;;
    11) outcome=undecided ;;
    12) outcome=invalid ;;
    *) exit "$code" ;;
esac
printf 'outcome=%s\nrecord=%s\n' "$outcome" "$record" >>"${GITHUB_OUTPUT:-/dev/stdout}"
exit "$code"
