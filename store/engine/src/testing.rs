//! A small bench for unit tests: one partition, calls as lines of text, replies as readable text.

use crate::command::{lookup, resolve};
use crate::steps::CancelFlag;
use crate::{Args, CommandError, Ctx, Effects, Partition, Partitions, Protocol, Reply, UndoLog, Work};

/// An engine of one partition, at a time that only the test moves.
pub struct Bench {
    pub partition: Partition,
    pub db: usize,
    pub now_ms: u64,
    pub protocol: Protocol,
    /// While there is a log, changes are recorded in it.
    pub undo: Option<UndoLog>,
    /// While there are some, changes are recorded in them.
    pub effects: Option<Effects>,
    /// What the last call did.
    pub work: Work,
    /// Ends calls.
    pub cancel: Option<CancelFlag>,
    /// Bytes that a value may take.
    pub memory_limit: usize,
    /// Bytes that a reply may take.
    pub reply_limit: usize,
    seed: u64,
}

impl Bench {
    pub fn new() -> Bench {
        let partition = Partition::default();
        Bench {
            partition,
            db: 0,
            now_ms: 1_000_000,
            protocol: Protocol::Resp2,
            undo: None,
            effects: None,
            work: Work::unlimited(),
            cancel: None,
            memory_limit: usize::MAX,
            reply_limit: usize::MAX,
            seed: 1,
        }
    }

    /// Runs a call whose words are separated by blanks (`""` is the empty word) and returns its RESP bytes with
    /// every CR LF as a blank, such as `*2 $1 a :5`.
    pub fn run(&mut self, line: &str) -> String {
        let items: Vec<&[u8]> = line
            .split_whitespace()
            .map(|word| if word == "\"\"" { &b""[..] } else { word.as_bytes() })
            .collect();
        self.call(&items)
    }

    /// Runs a call given as items.
    pub fn call(&mut self, items: &[&[u8]]) -> String {
        let args = Args::new(items);
        let name = args.name().to_ascii_lowercase();
        let mut out = Reply::new(self.protocol);
        out.set_limit(self.reply_limit);
        let work = self.cancel.clone().map_or_else(Work::unlimited, Work::until);
        self.work = work.with_memory_limit(self.memory_limit);
        let result = match lookup(&name).and_then(|command| resolve(command, args)) {
            None => Err(CommandError::new("ERR unknown command")),
            Some(command) if !command.arity.allows(args.len()) => {
                Err(crate::error::wrong_arity(command.name))
            }
            Some(command) => {
                let mut ctx = Ctx {
                    partitions: Partitions::One(&mut self.partition),
                    db: self.db,
                    now_ms: self.now_ms,
                    seed: &mut self.seed,
                    undo: self.undo.as_mut(),
                    effects: self.effects.as_mut(),
                    key_actions: None,
                    work: &self.work,
                    out: &mut out,
                };
                (command.run)(&mut ctx, args)
            }
        };
        if let Err(error) = result {
            out.buf.clear();
            out.error(&error);
        }
        String::from_utf8_lossy(&out.buf).replace("\r\n", " ").trim_end().to_owned()
    }

    /// Runs a call and compares its reply.
    #[track_caller]
    pub fn expect(&mut self, line: &str, wanted: &str) {
        assert_eq!(self.run(line), wanted, "{line}");
    }

    /// Everything there is, for comparisons: keys in order with their entries, and the byte account.
    pub fn contents(&self) -> (Vec<String>, usize) {
        let mut entries = Vec::new();
        for (db, space) in self.partition.databases.iter().enumerate() {
            entries.extend((0..space.len()).filter_map(|at| {
                let (key, entry) = space.pair_at(at)?;
                Some(format!("{db} {} {entry:?}", key.escape_ascii()))
            }));
        }
        entries.sort_unstable();
        (entries, self.partition.bytes())
    }

    /// Runs calls with an undo log, takes everything back and checks that nothing is left of them.
    #[track_caller]
    pub fn check_roll_back(&mut self, lines: &[&str]) {
        let before = self.contents();
        self.undo = Some(UndoLog::default());
        for line in lines {
            self.run(line);
        }
        let mut log = self.undo.take().unwrap_or_default();
        log.roll_back(&mut Partitions::One(&mut self.partition));
        assert_eq!(self.contents(), before, "after rolling back {lines:?}");
    }
}
