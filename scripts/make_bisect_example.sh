#!/usr/bin/env bash
# Makes the repository that experiments/bisect-example.yaml is about: a small C program with sixteen
# commits behind a good one. The tenth computes a tenth more than it has to and says nothing of it; the fourth and
# the ninth do not build. Dates and names are fixed, so the commits are the same everywhere.
#
#   scripts/make_bisect_example.sh FOLDER
set -euo pipefail
folder=$1
[[ -e $folder ]] && { echo "$folder: expected a path where nothing is yet" >&2; exit 2; }
mkdir -p "$folder"
cd "$folder"
git init --quiet --initial-branch=main .

# Writes the program: a comment, how many steps of a hundred are redone, and what the program calls itself.
program() {
    cat >mix.c <<C
/* $1 */
#include <stdint.h>
#include <stdio.h>

static uint64_t step(uint64_t x) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

int main(void) {
    const uint64_t blocks = 1500000, length = 100;
    uint64_t x = 88172645463325252u;
    for (uint64_t block = 0; block < blocks; block++) {
        for (uint64_t i = 0; i < length; i++) x = step(x);
        uint64_t y = x;
        for (uint64_t i = 0; i < $2; i++) y = step(y);
        x ^= y == 0; /* never */
    }
    printf("{\"checksum\": \"%016llx\", \"part\": \"$3\"}\n", (unsigned long long)x);
    return 0;
}
C
}

commit() {
    git add mix.c
    GIT_AUTHOR_DATE="2026-01-01T00:00:$1Z" GIT_COMMITTER_DATE="2026-01-01T00:00:$1Z" \
        git -c user.name=example -c user.email=example@example.org -c commit.gpgsign=false \
        commit --quiet --message "$2"
}

program "first" 0 "00"
commit 00 "mix: a stream of numbers"
for number in 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16; do
    redone=0
    ((10#$number >= 10)) && redone=10
    part=$number
    message="mix: tidy, part $number"
    case $number in
        04 | 09) part='", not_written_yet, "' message="mix: unfinished, part $number" ;;
        10) message="mix: keep a second stream" ;;
    esac
    program "part $number" "$redone" "$part"
    commit "$number" "$message"
done
git log --format='%H %s' --reverse
