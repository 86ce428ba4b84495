//! Spikes: calls that took longer than `latency-monitor-threshold`, by kind.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Samples that are kept of each kind, as in Redis.
const SAMPLES: usize = 160;

/// Kinds of calls, as Redis calls their events: those of the flag `fast`, and others.
pub const KINDS: [&str; 2] = ["command", "fast-command"];

/// The longest call of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spike {
    /// Unix time in seconds.
    pub at: u64,
    /// How long it took.
    pub millis: u64,
}

/// Spikes of one kind.
#[derive(Clone, Default)]
pub struct Series {
    /// The oldest first.
    pub spikes: VecDeque<Spike>,
    /// The longest ever.
    pub most_millis: u64,
}

/// All of them, by the place of their kind in [`KINDS`].
#[derive(Default)]
pub struct Latency(Mutex<[Series; 2]>);

impl Latency {
    /// Notes a call.
    pub fn add(&self, is_fast: bool, spike: Spike) {
        let series = &mut self.0.lock()[usize::from(is_fast)];
        series.most_millis = series.most_millis.max(spike.millis);
        match series.spikes.back_mut() {
            Some(last) if last.at == spike.at => last.millis = last.millis.max(spike.millis),
            _ => {
                if series.spikes.len() == SAMPLES {
                    series.spikes.pop_front();
                }
                series.spikes.push_back(spike);
            }
        }
    }

    /// Kinds that there are spikes of.
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        let all = KINDS.into_iter().zip(self.0.lock().clone());
        all.filter(|(_, series)| !series.spikes.is_empty()).collect()
    }

    /// Forgets the spikes of a kind; whether there were any.
    pub fn forget(&self, kind: &str) -> bool {
        let at = KINDS.iter().position(|known| *known == kind);
        at.is_some_and(|at| !std::mem::take(&mut self.0.lock()[at]).spikes.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_and_there_are_only_so_many() {
        let latency = Latency::default();
        for (at, millis) in [(1, 5), (1, 9), (1, 7), (2, 6)] {
            latency.add(false, Spike { at, millis });
        }
        let all = latency.all();
        assert_eq!(all.len(), 1);
        let (kind, series) = &all[0];
        assert_eq!((*kind, series.most_millis), ("command", 9));
        assert_eq!(series.spikes, [Spike { at: 1, millis: 9 }, Spike { at: 2, millis: 6 }]);
        (3..1000).for_each(|at| latency.add(false, Spike { at, millis: 1 }));
        assert_eq!(latency.all()[0].1.spikes.len(), SAMPLES);
        assert!(latency.forget("command") && !latency.forget("command") && !latency.forget("nothing"));
        assert!(latency.all().is_empty());
    }
}
