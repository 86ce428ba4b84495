//! What the runs of a script did: counted for each script, in bounded memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use script::ResourceUsage;
use store::latency::Times;

/// After a run that could not begin with its first calls, because others had its keys or it wanted to know the time first,
/// so many do not try: few enough to notice that it is over, enough for one try in vain to cost nothing.
const APART: u32 = 100;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a reply that is no error.
    Well,
    /// With an error of its own.
    WithError,
    /// By a limit, or because the sandbox broke.
    ByLimit,
    /// Somebody killed it.
    Killed,
}

impl Ended {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            Ended::Well => "ok",
            Ended::WithError => "error",
            Ended::ByLimit => "limit",
            Ended::Killed => "killed",
        }
    }
}

/// What all runs did together.
#[derive(Default)]
pub struct Totals {
    /// By [`Ended`].
    runs: [AtomicU64; 4],
    /// Fuel that they used.
    pub fuel: AtomicU64,
    /// Commands that they called.
    pub calls: AtomicU64,
    /// How long their last rounds took.
    pub times: Times,
}

impl Totals {
    /// Notes one run.
    pub fn add(&self, ended: Ended, usage: &ResourceUsage) {
        add(&self.runs[ended as usize], 1);
        add(&self.fuel, usage.total_fuel());
        add(&self.calls, usage.calls);
        if ended != Ended::Killed {
            self.times.add(usage.time);
        }
    }

    /// Each way to end with how many runs ended so.
    pub fn outcomes(&self) -> [(&'static str, u64); 4] {
        [Ended::Well, Ended::WithError, Ended::ByLimit, Ended::Killed]
            .map(|ended| (ended.word(), self.runs[ended as usize].load(Ordering::Relaxed)))
    }
}

/// Most names of scripts that metrics tell apart, and their longest.
const MOST_NAMES: usize = 100;
const MOST_NAME_BYTES: usize = 64;
/// The name of all others.
const OTHER: &str = "other";

/// [`Totals`] by the names that scripts have declared, of which there is a bounded number.
#[derive(Default)]
pub struct NamedTotals(Mutex<BTreeMap<Box<str>, Arc<Totals>>>);

impl NamedTotals {
    /// Those of all scripts with this name; of a name too many, those of all such names.
    fn of(&self, name: &str) -> Arc<Totals> {
        let mut all = self.0.lock();
        if let Some(known) = all.get(name) {
            return known.clone();
        }
        let fits = all.len() < MOST_NAMES && name.len() <= MOST_NAME_BYTES;
        all.entry(if fits { name } else { OTHER }.into()).or_default().clone()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<(String, Arc<Totals>)> {
        self.0.lock().iter().map(|(name, totals)| (name.to_string(), totals.clone())).collect()
    }
}

/// Counters and distributions of one script.
#[derive(Default)]
pub struct Stats {
    /// Those of its name, once it has run.
    named: OnceLock<Arc<Totals>>,
    runs: AtomicU64,
    errors: AtomicU64,
    limits: AtomicU64,
    killed: AtomicU64,
    commands: AtomicU64,
    reruns: AtomicU64,
    undeclared: AtomicU64,
    compiled: AtomicU64,
    /// So many runs from now on begin before their first calls.
    apart: AtomicU32,
    spread: Mutex<Spread>,
}

/// What the runs used. A script that ran once has no distribution, which takes 5 KB.
#[derive(Default)]
enum Spread {
    /// No run has ended.
    #[default]
    Empty,
    /// One has.
    Once(RunCost),
    /// Several have.
    Many(Box<RunDistributions>),
}

/// What one run used.
#[derive(Clone, Copy, Default)]
struct RunCost {
    fuel: u64,
    micros: u64,
}

impl Spread {
    fn add(&mut self, run: RunCost) {
        match self {
            Spread::Empty => *self = Spread::Once(run),
            Spread::Once(first) => {
                let mut all = RunDistributions::new();
                all.add(*first);
                all.add(run);
                *self = Spread::Many(Box::new(all));
            }
            Spread::Many(all) => all.add(run),
        }
    }
}

/// Distributions over the runs. 600 counters each: two digits that count, over twelve orders of magnitude.
#[derive(Clone)]
struct RunDistributions {
    fuel: Histogram<u32>,
    micros: Histogram<u32>,
    /// Exactly: a histogram knows the largest as the end of a bucket.
    most: RunCost,
    /// Exactly, too.
    sum_micros: u64,
}

impl RunDistributions {
    fn new() -> RunDistributions {
        let empty = || Histogram::new_with_bounds(1, 1 << 40, 1).expect("the bounds are in order");
        RunDistributions { fuel: empty(), micros: empty(), most: RunCost::default(), sum_micros: 0 }
    }

    fn add(&mut self, RunCost { fuel, micros }: RunCost) {
        self.fuel.saturating_record(fuel);
        self.micros.saturating_record(micros);
        self.sum_micros = self.sum_micros.saturating_add(micros);
        self.exceed(RunCost { fuel, micros });
    }

    fn exceed(&mut self, RunCost { fuel, micros }: RunCost) {
        self.most = RunCost { fuel: self.most.fuel.max(fuel), micros: self.most.micros.max(micros) };
    }

    fn join(&mut self, spread: &Spread) {
        match spread {
            Spread::Empty => {}
            Spread::Once(run) => self.add(*run),
            Spread::Many(other) => {
                self.fuel.add(&other.fuel).expect("all have the same bounds");
                self.micros.add(&other.micros).expect("all have the same bounds");
                self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
                self.exceed(other.most);
            }
        }
    }
}

/// What [`Stats`] says.
pub struct Report {
    /// Name and number of each count.
    pub counts: Vec<(&'static str, u64)>,
    /// A histogram of microseconds, as text.
    pub latency: String,
}

impl Stats {
    /// Notes one run.
    pub fn add(&self, ended: Ended, usage: &ResourceUsage) {
        let counter = match ended {
            Ended::Well => None,
            Ended::WithError => Some(&self.errors),
            Ended::ByLimit => Some(&self.limits),
            Ended::Killed => Some(&self.killed),
        };
        counter.inspect(|counter| add(counter, 1));
        add(&self.commands, usage.calls);
        add(&self.runs, 1);
        add(&self.compiled, usage.compiled.into());
        // What a run that was killed has used is not known.
        if ended != Ended::Killed {
            self.spread.lock().add(RunCost { fuel: usage.fuel, micros: usage.time.as_micros() as u64 });
        }
    }

    /// Notes the same for all scripts of its name.
    pub fn add_named(&self, names: &NamedTotals, name: &str, ended: Ended, usage: &ResourceUsage) {
        self.named.get_or_init(|| names.of(name)).add(ended, usage);
    }

    /// Notes that a run had to be repeated.
    pub fn add_rerun(&self) {
        add(&self.reruns, 1);
    }

    /// Whether a run may begin with its first calls, which was in vain for those before it if not.
    pub fn may_open(&self) -> bool {
        let less = |runs: u32| runs.checked_sub(1);
        self.apart.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }

    /// Notes that a run could not.
    pub fn begin_apart(&self) {
        self.apart.store(APART, Ordering::Relaxed);
    }

    /// Notes keys that a run locked without having declared them. Whether these are the first.
    pub fn add_undeclared(&self, keys: u64) -> bool {
        self.undeclared.fetch_add(keys, Ordering::Relaxed) == 0
    }

    /// Begins anew.
    pub fn reset(&self) {
        for counter in self.counters().map(|(_, counter)| counter) {
            counter.store(0, Ordering::Relaxed);
        }
        *self.spread.lock() = Spread::Empty;
    }

    fn counters(&self) -> [(&'static str, &AtomicU64); 8] {
        [
            ("runs", &self.runs),
            ("errors", &self.errors),
            ("limits_hit", &self.limits),
            ("killed", &self.killed),
            ("commands", &self.commands),
            ("reruns", &self.reruns),
            ("undeclared_keys", &self.undeclared),
            ("compiled_runs", &self.compiled),
        ]
    }

    /// The sum over `several`.
    pub fn report<'a>(several: impl Iterator<Item = &'a Stats>) -> Report {
        let mut sums = [0; 8];
        let mut names = [""; 8];
        let mut all = RunDistributions::new();
        for stats in several {
            for (at, (name, counter)) in stats.counters().into_iter().enumerate() {
                names[at] = name;
                sums[at] += counter.load(Ordering::Relaxed);
            }
            all.join(&stats.spread.lock());
        }
        let mut counts: Vec<_> = names.into_iter().zip(sums).filter(|(name, _)| !name.is_empty()).collect();
        for (names, histogram, most) in [
            (["fuel_p50", "fuel_p99", "fuel_max"], &all.fuel, all.most.fuel),
            (["usec_p50", "usec_p99", "usec_max"], &all.micros, all.most.micros),
        ] {
            let quantile = |share: f64| histogram.value_at_quantile(share).min(most);
            counts.extend(names.into_iter().zip([quantile(0.5), quantile(0.99), most]));
        }
        Report { counts, latency: latency(&all) }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// One line for each filled step of a histogram: up to how many microseconds, how many runs, and which share of
/// all runs was as quick.
fn latency(RunDistributions { micros, most, sum_micros, .. }: &RunDistributions) -> String {
    let mean = *sum_micros as f64 / micros.len().max(1) as f64;
    let mut text = format!("Count: {} Average: {mean:.1} Max: {}\n", micros.len(), most.micros);
    for step in micros.iter_recorded() {
        let (upto, runs) = (step.value_iterated_to(), step.count_at_value());
        text.push_str(&format!("<= {upto} usec: {runs} ({:.2}%)\n", step.percentile()));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn usage(fuel: u64) -> ResourceUsage {
        ResourceUsage { fuel, calls: 2, time: Duration::from_micros(fuel / 10), ..ResourceUsage::default() }
    }

    #[test]
    fn one_run_is_reported_exactly() {
        let stats = Stats::default();
        stats.add(Ended::ByLimit, &usage(5058));
        let counts = Stats::report([&stats].into_iter()).counts;
        let of = |name| counts.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!([of("fuel_p50"), of("fuel_p99"), of("fuel_max")], [Some(5058); 3]);
        assert_eq!([of("usec_p50"), of("usec_max")], [Some(505); 2]);
        let latency = Stats::report([&stats].into_iter()).latency;
        assert!(latency.starts_with("Count: 1 Average: 505.0 Max: 505\n"), "{latency}");
    }

    #[test]
    fn names_are_told_apart_up_to_a_number() {
        let names = NamedTotals::default();
        let scripts: Vec<(Stats, String)> = (0..MOST_NAMES + 20)
            .map(|at| (Stats::default(), format!("script-{:03}", at % (MOST_NAMES + 10))))
            .collect();
        for (stats, name) in &scripts {
            stats.add_named(&names, name, Ended::Well, &usage(10));
        }
        Stats::default().add_named(&names, &"x".repeat(MOST_NAME_BYTES + 1), Ended::Well, &usage(10));
        let all = names.all();
        let runs = |totals: &Totals| totals.outcomes()[0].1;
        assert_eq!(all.len(), MOST_NAMES + 1);
        let found = all.iter().find(|(name, _)| name == OTHER).map(|(_, totals)| runs(totals));
        assert_eq!(found, Some(11), "ten names too many, and a long one");
        assert_eq!(all.iter().filter(|(_, totals)| runs(totals) == 2).count(), 10);
    }

    #[test]
    fn runs_are_summed_up_and_forgotten() {
        let (one, other) = (Stats::default(), Stats::default());
        for fuel in [100, 1000, 1000] {
            one.add(Ended::Well, &usage(fuel));
        }
        other.add(Ended::Killed, &usage(5));
        other.add(Ended::WithError, &usage(u64::MAX));
        let report = Stats::report([&one, &other].into_iter());
        let of = |name| report.counts.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!(
            (of("runs"), of("errors"), of("killed"), of("commands")),
            (Some(5), Some(1), Some(1), Some(10))
        );
        // Two digits of a number count.
        assert!(of("fuel_p50").is_some_and(|fuel| (1000..1100).contains(&fuel)));
        assert_eq!(of("fuel_max"), Some(u64::MAX));
        assert!(report.latency.starts_with("Count: 4 "));
        one.reset();
        other.reset();
        assert!(Stats::report([&one, &other].into_iter()).counts.iter().all(|(_, value)| *value == 0));
    }
}
