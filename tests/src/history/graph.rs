//! What must have come before what, and the search for a ring in it.

use std::collections::VecDeque;

use super::model::{Anomaly, Transaction};

/// Why one transaction must have come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It wrote before the other wrote the same.
    Ww,
    /// The other read what it wrote.
    Wr,
    /// It read what was there before the other wrote.
    Rw,
    /// It had ended when the other began.
    Time,
}

struct Edge {
    to: usize,
    kind: Kind,
    why: String,
}

/// What must have come before what.
pub struct Graph {
    edges: Vec<Vec<Edge>>,
}

/// Transactions of which each must have come before the next, and the last before the first.
pub struct Cycle {
    steps: Vec<(usize, Kind, String)>,
}

impl Graph {
    /// Of so many transactions.
    pub fn new(count: usize) -> Graph {
        Graph { edges: (0..count).map(|_| Vec::new()).collect() }
    }

    /// `from` must have come before `to`. Says nothing of a transaction and itself.
    pub fn add(&mut self, from: usize, to: usize, kind: Kind, why: impl FnOnce() -> String) {
        if from != to && !self.edges[from].iter().any(|edge| edge.to == to && edge.kind == kind) {
            self.edges[from].push(Edge { to, kind, why: why() });
        }
    }

    /// Adds who had ended when another began, given each one's number, beginning and end. What follows from two
    /// such steps is left out.
    pub fn add_times(&mut self, mut spans: Vec<(usize, u64, u64)>) {
        spans.sort_unstable_by_key(|(_, _, ended)| *ended);
        let latest: Vec<u64> = spans
            .iter()
            .scan(0, |latest, (_, began, _)| {
                *latest = (*latest).max(*began);
                Some(*latest)
            })
            .collect();
        for &(number, began, _) in &spans {
            let earlier = spans.partition_point(|(_, _, ended)| *ended < began);
            let Some(last) = earlier.checked_sub(1) else { continue };
            // Whoever ended before the latest beginning among them comes before that one too.
            let from = spans.partition_point(|(_, _, ended)| *ended < latest[last]);
            for &(before, _, _) in &spans[from..earlier] {
                self.add(before, number, Kind::Time, || "had ended when the other began".to_owned());
            }
        }
    }

    /// A short cycle, of the gravest kind that there is.
    pub fn cycle(&self) -> Option<Cycle> {
        [Kind::Ww, Kind::Wr, Kind::Rw, Kind::Time].into_iter().find_map(|most| {
            let parts = self.parts(most);
            let mut sizes = vec![0; self.edges.len()];
            parts.iter().for_each(|part| sizes[*part] += 1);
            let within = (0..self.edges.len()).filter(|node| sizes[parts[*node]] > 1);
            let cycles = within.filter_map(|node| self.shortest(node, most, &parts));
            cycles.min_by_key(|cycle| cycle.steps.len())
        })
    }

    fn next(&self, node: usize, most: Kind) -> impl Iterator<Item = &Edge> {
        self.edges[node].iter().filter(move |edge| edge.kind <= most)
    }

    /// For each node the number of its strongly connected part (Tarjan, without recursion).
    fn parts(&self, most: Kind) -> Vec<usize> {
        let count = self.edges.len();
        let (mut index, mut low, mut parts) =
            (vec![usize::MAX; count], vec![0; count], vec![usize::MAX; count]);
        let (mut open, mut seen, mut found) = (Vec::new(), 0, 0);
        for root in 0..count {
            if index[root] != usize::MAX {
                continue;
            }
            let mut path = vec![(root, self.next(root, most))];
            (index[root], low[root], seen) = (seen, seen, seen + 1);
            open.push(root);
            while let Some((node, edges)) = path.last_mut() {
                let node = *node;
                match edges.next() {
                    Some(edge) if index[edge.to] == usize::MAX => {
                        (index[edge.to], low[edge.to], seen) = (seen, seen, seen + 1);
                        open.push(edge.to);
                        path.push((edge.to, self.next(edge.to, most)));
                    }
                    Some(edge) if parts[edge.to] == usize::MAX => low[node] = low[node].min(index[edge.to]),
                    Some(_) => {}
                    None => {
                        path.pop();
                        if let Some((parent, _)) = path.last() {
                            low[*parent] = low[*parent].min(low[node]);
                        }
                        if low[node] == index[node] {
                            let start = open.iter().rposition(|other| *other == node).expect("it is open");
                            open.drain(start..).for_each(|member| parts[member] = found);
                            found += 1;
                        }
                    }
                }
            }
        }
        parts
    }

    /// The shortest way from `start` back to it that stays within its part.
    fn shortest(&self, start: usize, most: Kind, parts: &[usize]) -> Option<Cycle> {
        let mut came: Vec<Option<(usize, &Edge)>> = (0..self.edges.len()).map(|_| None).collect();
        let mut next = VecDeque::from([start]);
        while let Some(node) = next.pop_front() {
            for edge in self.next(node, most).filter(|edge| parts[edge.to] == parts[start]) {
                if came[edge.to].is_some() {
                    continue;
                }
                came[edge.to] = Some((node, edge));
                if edge.to == start {
                    let mut steps = Vec::new();
                    let mut at = start;
                    while steps.is_empty() || at != start {
                        let (from, edge) = came[at]?;
                        steps.push((from, edge.kind, edge.why.clone()));
                        at = from;
                    }
                    steps.reverse();
                    return Some(Cycle { steps });
                }
                next.push_back(edge.to);
            }
        }
        None
    }
}

impl Cycle {
    /// Its name and what happened.
    pub fn anomaly(&self, all: &[Transaction]) -> Anomaly {
        let count = |wanted| self.steps.iter().filter(|(_, kind, _)| *kind == wanted).count();
        let name = match (count(Kind::Rw), count(Kind::Wr)) {
            (0, 0) => "G0 write cycle",
            (0, _) => "G1c circular information flow",
            (1, _) => "G-single",
            _ => "G2",
        };
        let name = if count(Kind::Time) > 0 { format!("{name}, against real time") } else { name.to_owned() };
        let mut lines: Vec<String> =
            self.steps.iter().map(|(number, ..)| format!("  T{number} = {}", all[*number])).collect();
        for (at, (from, _, why)) in self.steps.iter().enumerate() {
            let (to, ..) = self.steps[(at + 1) % self.steps.len()];
            lines.push(format!("  T{from} before T{to}: T{from} {why}"));
        }
        Anomaly { name, story: lines.join("\n") }
    }
}
