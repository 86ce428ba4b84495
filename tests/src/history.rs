//! Whether what many clients saw at the same time is as if their transactions had run one by one, each at a moment
//! between its beginning and its end (strict serializability).
//!
//! Transactions append values, each of which exists once, to lists, and read lists. So a list tells in which order
//! its writers came, and a read tells after and before which of them it was; a cycle in these orders is an anomaly.
//! The names are those of Adya's thesis, the method that of Elle (Kingsbury and Alvaro, 2020).

mod graph;
mod model;

use std::collections::{HashMap, HashSet};

use graph::Graph;
pub use graph::Kind;
use model::Tail;
pub use model::{Anomaly, Ending, Op, Transaction};

/// Looks for an anomaly.
///
/// # Panics
/// When a value is appended twice: that is a mistake of who made the history.
pub fn check(history: &[Transaction]) -> Result<(), Anomaly> {
    let history = History::new(history);
    history.reads_alone()?;
    history.intermediate_reads()?;
    let order = history.order()?;
    history.graph(&order).cycle().map_or(Ok(()), |cycle| Err(cycle.anomaly(history.all)))
}

/// Values of each list, in the order of the list.
type Order<'a> = HashMap<&'a str, &'a [u64]>;

struct History<'a> {
    all: &'a [Transaction],
    /// Which transaction appended a value to a list.
    writers: HashMap<(&'a str, u64), usize>,
    /// Those that happened: committed ones, and such of unknown ending as somebody has seen.
    happened: Vec<usize>,
}

impl<'a> History<'a> {
    fn new(all: &'a [Transaction]) -> History<'a> {
        let mut writers = HashMap::new();
        for (number, transaction) in all.iter().enumerate() {
            for append in transaction.appends() {
                assert!(writers.insert(append, number).is_none(), "{append:?} is appended twice");
            }
        }
        let committed = |transaction: &&Transaction| transaction.ending == Ending::Committed;
        let mut seen: HashSet<usize> = HashSet::new();
        for (key, values) in all.iter().filter(committed).flat_map(Transaction::reads) {
            seen.extend(values.iter().filter_map(|value| writers.get(&(key, *value))));
        }
        let happened = (0..all.len()).filter(|number| match all[*number].ending {
            Ending::Committed => true,
            Ending::Undone => false,
            Ending::Unknown => seen.contains(number),
        });
        let happened = happened.collect();
        History { all, writers, happened }
    }

    fn happened(&self) -> impl Iterator<Item = (usize, &'a Transaction)> {
        self.happened.iter().map(|number| (*number, &self.all[*number]))
    }

    fn reads(&self) -> impl Iterator<Item = (usize, &'a str, &'a [u64])> {
        self.happened().flat_map(|(number, transaction)| {
            transaction.reads().map(move |(key, values)| (number, key, values))
        })
    }

    fn anomaly(&self, name: &str, why: &str, transactions: &[usize]) -> Anomaly {
        let mut story = why.to_owned();
        for number in transactions {
            story.push_str(&format!("\n  T{number} = {}", self.all[*number]));
        }
        Anomaly { name: name.to_owned(), story }
    }

    /// What is wrong with a read whatever else happened.
    fn reads_alone(&self) -> Result<(), Anomaly> {
        for (reader, key, values) in self.reads() {
            let mut met = HashSet::new();
            for value in values {
                if !met.insert(value) {
                    let why = format!("T{reader} read {value} twice in {key}");
                    return Err(self.anomaly("duplicate", &why, &[reader]));
                }
                match self.writers.get(&(key, *value)) {
                    None => {
                        let why = format!("T{reader} read {value} in {key}, which nobody wrote");
                        return Err(self.anomaly("made up", &why, &[reader]));
                    }
                    Some(writer) if self.all[*writer].ending == Ending::Undone => {
                        let why = format!("T{reader} read {value} in {key} of T{writer}, which was undone");
                        return Err(self.anomaly("G1a aborted read", &why, &[reader, *writer]));
                    }
                    Some(_) => {}
                }
            }
        }
        for (number, transaction) in self.happened() {
            // What it has to find at the end of a list, or in all of it, by what it did before.
            let mut known: HashMap<&str, (bool, Vec<u64>)> = HashMap::new();
            for op in &transaction.ops {
                match op {
                    Op::Append(key, value) => known.entry(key).or_default().1.push(*value),
                    Op::Read(key, values) => {
                        let fits = known.get(&**key).is_none_or(|(all, known)| match all {
                            true => values == known,
                            false => values.ends_with(known),
                        });
                        if !fits {
                            let why = format!(
                                "T{number} read {} in {key} against what it did itself",
                                Tail(values)
                            );
                            return Err(self.anomaly("internal", &why, &[number]));
                        }
                        known.insert(key, (true, values.clone()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Nobody may see some appends of another transaction to a list, but not all.
    fn intermediate_reads(&self) -> Result<(), Anomaly> {
        let mut last = HashMap::new();
        for (number, transaction) in self.happened() {
            last.extend(transaction.appends().map(|(key, value)| ((number, key), value)));
        }
        for (reader, key, values) in self.reads() {
            let Some(value) = values.last() else { continue };
            let writer = self.writers[&(key, *value)];
            if writer != reader && last.get(&(writer, key)) != Some(value) {
                let why =
                    format!("T{reader} read {key} up to {value}, after which T{writer} appended more to it");
                return Err(self.anomaly("G1b intermediate read", &why, &[reader, writer]));
            }
        }
        Ok(())
    }

    /// The longest read of each list, of which all others have to be a beginning.
    fn order(&self) -> Result<Order<'a>, Anomaly> {
        let mut order: HashMap<&str, (usize, &[u64])> = HashMap::new();
        for (reader, key, values) in self.reads() {
            let (other, longest) = *order.entry(key).or_insert((reader, values));
            let (short, long) =
                if values.len() < longest.len() { (values, longest) } else { (longest, values) };
            if !long.starts_with(short) {
                let why =
                    format!("T{reader} and T{other} read {key} in two orders:\n  {values:?}\n  {longest:?}");
                return Err(self.anomaly("incompatible order", &why, &[reader, other]));
            }
            if values.len() > longest.len() {
                order.insert(key, (reader, values));
            }
        }
        Ok(order.into_iter().map(|(key, (_, values))| (key, values)).collect())
    }

    fn graph(&self, order: &Order<'a>) -> Graph {
        let mut graph = Graph::new(self.all.len());
        let mut unread: HashMap<&str, Vec<(usize, u64)>> = HashMap::new();
        for (number, transaction) in self.happened() {
            for (key, value) in transaction.appends() {
                if !order.get(key).is_some_and(|values| values.contains(&value)) {
                    unread.entry(key).or_default().push((number, value));
                }
            }
        }
        // Who appended what comes after so many values. Those that nobody has read come after all others.
        let next = |key: &str, count: usize| -> Vec<(usize, u64)> {
            match order.get(key).and_then(|values| values.get(count)) {
                Some(value) => vec![(self.writers[&(key, *value)], *value)],
                None => unread.get(key).cloned().unwrap_or_default(),
            }
        };
        for (key, values) in order {
            for (at, value) in values.iter().enumerate() {
                let writer = self.writers[&(*key, *value)];
                for (after, appended) in next(key, at + 1) {
                    graph.add(writer, after, Kind::Ww, || {
                        format!("appended {value} to {key} before {appended}")
                    });
                }
            }
        }
        for (reader, key, values) in self.reads() {
            let own = |value: &&u64| self.writers[&(key, **value)] == reader;
            if let Some(value) = values.iter().rev().find(|value| !own(value)) {
                let writer = self.writers[&(key, *value)];
                graph.add(writer, reader, Kind::Wr, || format!("appended {value} to {key}, which was read"));
            }
            for (writer, value) in next(key, values.len()) {
                graph.add(reader, writer, Kind::Rw, || format!("read {key} without {value}, appended later"));
            }
        }
        let spans = self.happened().map(|(number, transaction)| {
            let ended = if transaction.ending == Ending::Unknown { u64::MAX } else { transaction.ended };
            (number, transaction.began, ended)
        });
        graph.add_times(spans.collect());
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transaction in the notation of its [`Display`], such as `x+1 x=[1] y=[]`, from one time to another.
    fn transaction(ending: Ending, (began, ended): (u64, u64), text: &str) -> Transaction {
        let number = |text: &str| text.parse().expect("a number");
        let op = |text: &str| match text.split_once('+') {
            Some((key, value)) => Op::Append(key.into(), number(value)),
            None => {
                let (key, values) = text.split_once('=').expect("a read");
                let values = values.trim_matches(['[', ']']).split(',').filter(|value| !value.is_empty());
                Op::Read(key.into(), values.map(number).collect())
            }
        };
        let ops = text.split(' ').map(op).collect();
        Transaction { name: "test".into(), ops, ending, began, ended }
    }

    /// Transactions that ran all at the same time.
    fn at_once(texts: &[&str]) -> Vec<Transaction> {
        let count = texts.len() as u64;
        let span = |at: usize| (at as u64, count + at as u64);
        texts.iter().enumerate().map(|(at, text)| transaction(Ending::Committed, span(at), text)).collect()
    }

    /// Transactions that ran one after the other.
    fn in_turn(texts: &[&str]) -> Vec<Transaction> {
        let span = |at: usize| (at as u64 * 2, at as u64 * 2 + 1);
        texts.iter().enumerate().map(|(at, text)| transaction(Ending::Committed, span(at), text)).collect()
    }

    fn found(history: &[Transaction]) -> String {
        check(history).err().map_or("clean".into(), |anomaly| anomaly.name)
    }

    #[test]
    fn clean_histories_are_clean() {
        assert_eq!(found(&[]), "clean");
        assert_eq!(found(&in_turn(&["x+1 y+2", "x=[1] x+3 x=[1,3] y=[2]", "x=[1,3] y=[2]"])), "clean");
        // Any order will do as long as there is one.
        assert_eq!(found(&at_once(&["x=[] y=[2]", "x+1 x=[1]", "y+2 x=[]", "x+3 x=[1,3]"])), "clean");
        // Blind writes that nobody reads have no order, but they are there.
        assert_eq!(found(&at_once(&["x+1", "x+2", "x=[]"])), "clean");
        assert_eq!(found(&at_once(&["x+1 y+2", "x+3 y+4", "x=[1,3] y=[2,4]"])), "clean");
    }

    #[test]
    fn unknown_endings_may_have_happened_or_not() {
        let cut = transaction(Ending::Unknown, (0, 0), "x+1 y+2");
        let before = transaction(Ending::Committed, (1, 2), "x=[] y=[]");
        let after = transaction(Ending::Committed, (3, 4), "x=[1] y=[2]");
        let half = transaction(Ending::Committed, (3, 4), "x=[1] y=[]");
        assert_eq!(found(&[cut.clone(), before.clone()]), "clean");
        assert_eq!(found(&[cut.clone(), before.clone(), after]), "clean");
        assert_eq!(found(&[cut, before, half]), "G-single");
    }

    #[test]
    fn what_was_undone_is_not_seen() {
        let undone = transaction(Ending::Undone, (0, 1), "x+1");
        let read = |values: &str| transaction(Ending::Committed, (2, 3), &format!("x={values}"));
        assert_eq!(found(&[undone.clone(), read("[]")]), "clean");
        assert_eq!(found(&[undone, read("[1]")]), "G1a aborted read");
    }

    #[test]
    fn intermediate_reads_are_found() {
        assert_eq!(found(&at_once(&["x+1 x+2", "x=[1]", "x=[1,2]"])), "G1b intermediate read");
        // One's own are none.
        assert_eq!(found(&at_once(&["x+1 x=[1] x+2", "x=[1,2]"])), "clean");
    }

    #[test]
    fn write_cycles_are_found() {
        assert_eq!(found(&at_once(&["x+1 y+2", "x+3 y+4", "x=[1,3]", "y=[4,2]"])), "G0 write cycle");
        // One in the middle of another.
        assert_eq!(found(&at_once(&["x+1 x+2", "x+3", "x=[1,3,2]"])), "G0 write cycle");
    }

    #[test]
    fn circular_information_flow_is_found() {
        assert_eq!(found(&at_once(&["x+1 y=[2]", "y+2 x=[1]"])), "G1c circular information flow");
    }

    #[test]
    fn lost_updates_are_found() {
        // Both saw nothing, and both wrote.
        assert_eq!(found(&at_once(&["x=[] x+1", "x=[] x+2", "x=[1,2]"])), "G-single");
        // One is not there afterwards.
        assert_eq!(found(&in_turn(&["x+1", "x+2", "x=[2]"])), "G0 write cycle, against real time");
    }

    #[test]
    fn read_skew_and_write_skew_are_found() {
        assert_eq!(found(&at_once(&["x+1 y+2", "x=[1] y=[]"])), "G-single");
        assert_eq!(found(&at_once(&["x=[] y+1", "y=[] x+2"])), "G2");
        assert_eq!(found(&at_once(&["x=[] y+1", "y=[] z+2", "z=[] x+3"])), "G2");
    }

    #[test]
    fn violations_of_real_time_are_found() {
        assert_eq!(found(&in_turn(&["x+1", "x=[]"])), "G-single, against real time");
        assert_eq!(found(&in_turn(&["x=[1]", "x+1"])), "G1c circular information flow, against real time");
        assert_eq!(found(&in_turn(&["x+1", "x+2", "x=[2,1]"])), "G0 write cycle, against real time");
        // The long way round: the first had ended long before the last began.
        let long = in_turn(&["x+1", "y+2", "y=[2]", "z+3", "x=[]"]);
        assert_eq!(found(&long), "G-single, against real time");
        // At the same time, each of these would be right.
        assert_eq!(found(&at_once(&["x+1", "x=[]"])), "clean");
    }

    #[test]
    fn nonsense_is_found() {
        assert_eq!(found(&at_once(&["x=[9]"])), "made up");
        assert_eq!(found(&at_once(&["x+1", "x=[1,1]"])), "duplicate");
        assert_eq!(found(&at_once(&["x+1 x=[]"])), "internal");
        assert_eq!(found(&at_once(&["x+1", "x=[] x=[1]"])), "internal");
        assert_eq!(found(&at_once(&["x+1", "x+2", "x=[1,2]", "x=[2,1]"])), "incompatible order");
    }

    #[test]
    fn the_story_names_everybody() {
        let anomaly = check(&at_once(&["x=[] y+1", "y=[] x+2"])).expect_err("write skew").to_string();
        insta::assert_snapshot!(anomaly, @r"
        G2
          T0 = test from 0 to 2, Committed: x=[] y+1
          T1 = test from 1 to 3, Committed: y=[] x+2
          T0 before T1: T0 read x without 2, appended later
          T1 before T0: T1 read y without 1, appended later
        ");
    }

    /// Runs one by one in random order stay clean, and a read that is moved to another time does not.
    #[test]
    fn random_histories() {
        use crate::generate::Chance;
        let mut moved_away = 0;
        for seed in 0..200 {
            let mut chance = Chance::new(seed);
            let mut lists: HashMap<&str, Vec<u64>> = HashMap::new();
            let mut history = Vec::new();
            for number in 0..60 {
                let mut ops = Vec::new();
                for step in 0..1 + chance.below(4) as u64 {
                    let key = chance.pick(&["x", "y", "z"]);
                    let list = lists.entry(key).or_default();
                    if chance.percent(50) {
                        list.push(number * 10 + step);
                        ops.push(Op::Append(key.into(), number * 10 + step));
                    } else {
                        ops.push(Op::Read(key.into(), list.clone()));
                    }
                }
                let (began, ended) = (number * 10 - number.min(chance.below(20) as u64), number * 10 + 1);
                let ending = Ending::Committed;
                // Times are all different: what began within the same tick did so at the same time.
                history.push(Transaction {
                    name: "t".into(),
                    ops,
                    ending,
                    began: began * 2,
                    ended: ended * 2 + 1,
                });
            }
            check(&history).unwrap_or_else(|anomaly| panic!("seed {seed}: {anomaly}"));
            let reader = history.iter().rposition(
                |transaction| matches!(&transaction.ops[..], [Op::Read(_, values)] if values.len() > 1),
            );
            let Some(reader) = reader else { continue };
            let Op::Read(_, values) = &mut history[reader].ops[0] else { panic!("it reads") };
            // As if it had been run before the last two appends.
            values.truncate(values.len() - 2);
            moved_away += usize::from(check(&history).is_err());
        }
        assert!(moved_away > 100, "only {moved_away} stale reads were found");
    }
}
