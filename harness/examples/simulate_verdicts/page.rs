//! The page: tables of shares in percent.

use std::fmt::Write as _;

use super::bounds;
use super::rivals::Rival;
use super::trial::{ALPHA, GATE_PCT, Seen, Share};
use super::variance::Outcome;
use super::world::{Noise, SIGMA, World};
use super::{Arguments, Results};

/// How many statements one world is held to, and the level of each.
const STATEMENTS: usize = 6;
const LEVEL: f64 = 0.01;

/// docs/calibration/simulated.md.
pub(crate) fn page(arguments: &Arguments, results: &Results, broken: &[String]) -> String {
    let mut out = head(arguments);
    out.push_str(&verdict(arguments, results, broken));
    out.push_str(&levels(results));
    out.push_str(&histories(results));
    out.push_str(&power(results));
    out.push_str(&rivals(results));
    out.push_str(&limits(results));
    out.push_str(&revisions(results));
    out.push_str(&variances(arguments, results));
    out
}

fn head(arguments: &Arguments) -> String {
    let Arguments {
        runs, seed, commit, ..
    } = arguments;
    format!(
        "# What the rule does on simulated machines\n\n\
         Written by the program, not by hand: commit `{commit}`, seed {seed}, {runs} runs per \
         setting, each through the whole of `verdict::decide::decide`:\n\n\
         ```sh\n\
         cargo run --release -p bench-run --example simulate_verdicts -- --commit \"$(git rev-parse HEAD)\"\n\
         ```\n\n\
         Base, one null arm of it and one candidate, ordered as a plan orders them; noise of \
         {:.1} % per attempt (cells differ by a factor of about 1.35), a drift of ±2 % over the \
         session, and the kind of noise that each table names. Gate of {GATE_PCT} % on a rate, α = \
         {ALPHA}, no history of the host unless a table says so. Shares are percent of runs; the 99 % margin of {runs} runs \
         is ±{:.1} at 5 %.\n\n",
        100.0 * SIGMA,
        257.6 * (ALPHA * (1.0 - ALPHA) / *runs as f64).sqrt(),
    )
}

fn verdict(arguments: &Arguments, results: &Results, broken: &[String]) -> String {
    let bound = |level: &&super::Level| super::is_bound(&level.0);
    let levels = results
        .levels
        .iter()
        .chain(&results.histories)
        .filter(bound);
    let statements = STATEMENTS * levels.clone().count();
    let first: Vec<String> = levels.flat_map(super::broken).collect();
    let (runs, fresh) = (arguments.runs, super::FRESH * arguments.runs);
    let mut out = format!(
        "## Bounds\n\n\
         Without a change: any false \"slower\" in at most 5 % of runs (6 % under correlated noise), \
         any difference by relabelling in at most 5 %, intervals that cover the truth in {:.0} to {} %. \
         Exactly at the gate: passes, Equivalent and passes by relabelling in at most 5 %. Relabelling is \
         excused where the candidate is noisier or copies lie apart: it takes runs to be exchangeable, and \
         those are not; it decides nothing.\n\n\
         Each bound holds up to its 99 % margin of {runs} runs. {statements} statements are made, so \
         about {:.0} could leave their margin by chance if all stood at their bounds; {} do. Settings that do \
         are run again {fresh} times, with other seeds, and what leaves the narrower margin of those is a \
         fault.\n\n",
        100.0 * bounds::COVERAGE.0,
        100.0 * bounds::COVERAGE.1,
        LEVEL * statements as f64,
        first.len(),
    );
    if first.is_empty() {
        out.push_str("**All of them hold in every setting below.**\n\n");
        return out;
    }
    for line in first {
        let _ = writeln!(out, "- {line}");
    }
    if broken.is_empty() {
        let _ = writeln!(out, "\n**With {fresh} fresh runs all of them hold.**\n");
        return out;
    }
    let number = broken.len();
    let _ = writeln!(out, "\n**{number} broken with {fresh} fresh runs:**\n");
    for line in broken {
        let _ = writeln!(out, "- {line}");
    }
    out.push('\n');
    out
}

fn histories(results: &Results) -> String {
    let mut out = String::from(
        "## With a history of the host\n\n\
         At least twenty contrasts between copies of the base, left by earlier runs, stand in the plan. \
         *Too calm*: copies lay half as far apart in those runs as the noise model says. *Copies \
         apart*: every arm is faster or slower by 0.25 % (standard deviation) for the whole run, which no \
         round averages out; only the contrasts between copies can tell, so the bounds are promised with \
         an honest history alone.\n\n\
         | noise | history | cells | rounds | any slower | any faster | Invalid | a cell passes | covers | at the gate: passes |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (world, still, gate) in &results.histories {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            world.noise.name(),
            world.history.name(),
            world.cells,
            world.rounds,
            pct(still.any_slower),
            pct(still.any_faster),
            pct(still.any_invalid),
            pct(still.passes),
            pct(still.covered),
            pct(gate.passes),
        );
    }
    out.push('\n');
    out
}

fn revisions(results: &Results) -> String {
    let mut out = String::from(
        "\n## The first revision of the rule\n\n\
         Plans sealed before [ADR 0030](../adr/0030-second-revision.md) are judged by it.\n\n\
         | noise | cells | rounds | revision | any slower | a cell passes | covers | at the gate: passes | +2 %: slower |\n\
         |---|--:|--:|---|--:|--:|--:|--:|--:|\n",
    );
    for (name, world, [still, gate, two]) in &results.revisions {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {name} | {} | {} | {} | {} | {} |",
            world.noise.name(),
            world.cells,
            world.rounds,
            pct(still.any_slower),
            pct(still.passes),
            pct(still.covered),
            pct(gate.passes),
            pct(two.slower),
        );
    }
    out
}

fn variances(arguments: &Arguments, results: &Results) -> String {
    let mut out = format!(
        "\n## What a candidate may borrow\n\n\
         One cell of normal noise without drift, {} draws: base, null arm and candidate, judged by other \
         variances than the rule's. κ is the ratio of the mean squares. Each pair: equal noise / candidate \
         twice as noisy.\n\n\
         | rounds | variance | covers | passes exactly at the gate | unchanged passes | +2 %: found |\n\
         |--:|---|--:|--:|--:|--:|\n",
        20 * arguments.runs
    );
    for (rounds, name, [equal, unequal]) in &results.variances {
        let pair = |of: fn(&Outcome) -> Share| format!("{} / {}", pct(of(equal)), pct(of(unequal)));
        let _ = writeln!(
            out,
            "| {rounds} | {name} | {} | {} | {} | {} |",
            pair(|one| one.covers),
            pair(|one| one.passes_at_gate),
            pair(|one| one.passes_unchanged),
            pair(|one| one.finds_two),
        );
    }
    out
}

fn pct(share: Share) -> String {
    format!("{:.1}", 100.0 * share.value())
}

fn levels(results: &Results) -> String {
    let mut out = String::from(
        "## No change, and a change exactly at the gate\n\n\
         *covers*: of all intervals. *relabelled*: runs in which the permutation test finds any \
         difference; at the gate, passes by it.\n\n\
         | noise | cells | rounds | any slower | any faster | any fail | Invalid | a cell passes | equal | covers | relabelled | at the gate: passes | equal | relabelled |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (world, still, gate) in &results.levels {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            world.noise.name(),
            world.cells,
            world.rounds,
            pct(still.any_slower),
            pct(still.any_faster),
            pct(still.any_fail),
            pct(still.any_invalid),
            pct(still.passes),
            pct(still.equivalent),
            pct(still.covered),
            pct(still.any_relabelled),
            pct(gate.passes),
            pct(gate.equivalent),
            pct(gate.relabelled_pass),
        );
    }
    out.push('\n');
    out
}

fn power(results: &Results) -> String {
    let mut out = String::from(
        "## What is found on the everyday machine\n\n\
         5 % spikes; the change is in the first cell, and what is said of that cell is counted. \
         *relabelled*: the permutation test finds it.\n\n\
         | cells | rounds | +1 %: slower | fails | passes | relabelled | +2 %: slower | fails | relabelled | +3 %: slower | fails |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (world, [one, two, three]) in &results.power {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            world.cells,
            world.rounds,
            pct(one.slower),
            pct(one.fails),
            pct(one.passes),
            pct(one.relabelled),
            pct(two.slower),
            pct(two.fails),
            pct(two.relabelled),
            pct(three.slower),
            pct(three.fails),
        );
    }
    out.push('\n');
    out
}

/// Ours with one cell: attempts executed, then the shares that a rival has.
pub(crate) fn ours(results: &Results) -> Vec<(usize, [Share; 4])> {
    let everyday = |world: &World| world.noise == Noise::Spikes && world.cells == 1;
    let still: Vec<&(World, Seen, Seen)> = results
        .levels
        .iter()
        .filter(|(world, ..)| everyday(world))
        .collect();
    let power = results.power.iter().filter(|(world, _)| everyday(world));
    still
        .into_iter()
        .zip(power)
        .map(|((world, still, _), (_, [one, two, three]))| {
            let found = [still.any_slower, one.slower, two.slower, three.slower];
            (3 * world.rounds, found)
        })
        .collect()
}

fn rivals(results: &Results) -> String {
    let mut out = String::from(
        "## Against other habits, per executed run\n\n\
         One cell of the everyday machine. Ours spends a third of its runs on the null arm; the \
         others spend all on base and candidate. *In blocks*: all runs of the base, then all of the \
         candidate, as those tools do unless told otherwise; ±2 % of drift then looks like a change. \
         Shares of runs that say \"slower\".\n\n\
         | rule | runs | no change, in blocks | no change, interleaved | +1 % | +2 % | +3 % |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for (runs, [still, one, two, three]) in ours(results) {
        let _ = writeln!(
            out,
            "| **bench-run** | {runs} | never in blocks | {} | {} | {} | {} |",
            pct(still),
            pct(one),
            pct(two),
            pct(three),
        );
    }
    for (rival, runs, shares) in &results.rivals {
        let shares: Vec<String> = shares.iter().map(|share| pct(*share)).collect();
        let _ = writeln!(
            out,
            "| {} | {runs} | {} |",
            rival.name(),
            shares.join(" | ")
        );
    }
    let three = results
        .rivals
        .iter()
        .find(|(rival, ..)| *rival == Rival::MedianOfThree);
    if let Some((.., [_, still, ..])) = three {
        let any = |cells: i32| 100.0 * (1.0 - (1.0 - still.value()).powi(cells));
        let _ = writeln!(
            out,
            "\nNone of the others knows how many cells there are: \"median of three over 1 %\" with \
             {} % of false alarms in one cell has {:.0} % in six and {:.0} % in twenty.",
            pct(*still),
            any(6),
            any(20)
        );
    }
    out.push_str(
        "\n![Share of a loss of 2 % that is found, and of false alarms, by executed runs](simulated-power.svg)\n\n",
    );
    out
}

fn limits(results: &Results) -> String {
    let mut out = String::from(
        "## Limits of moderation\n\n\
         The rule without null check and widening, on the everyday machine, with other limits of what a variance \
         may borrow ([ADR 0016](../adr/0016-what-the-simulation-changed.md)).\n\n\
         | cells | rounds | rule | any slower | any faster | a cell passes | covers | +2 %: slower |\n\
         |--:|--:|---|--:|--:|--:|--:|--:|\n",
    );
    for (name, world, still, two) in &results.limits {
        let _ = writeln!(
            out,
            "| {} | {} | {name} | {} | {} | {} | {} | {} |",
            world.cells,
            world.rounds,
            pct(still.any_slower),
            pct(still.any_faster),
            pct(still.passes),
            pct(still.covered),
            pct(two.slower),
        );
    }
    out
}
