//! The property of the fuzz target `source`, held to the scripts of the corpus and to a few hundred texts made of them:
//! the same ones in every run.

#[path = "../fuzz/fuzz_targets/property.rs"]
mod property;

use std::path::Path;

/// Pieces that change what a script means more often than a random byte does.
const PIECES: [&str; 24] = [
    "(",
    ")",
    "{",
    "}",
    "[[",
    "]]",
    "--",
    "\"",
    "\0",
    "\x1bLua",
    "end ",
    "while true do ",
    "function() ",
    "return ",
    "..",
    "-",
    "1e308",
    "0x",
    "nil",
    "string.rep('x', 1e5)",
    "redis.call('GETRANGE')",
    "coroutine.wrap(",
    "%",
    "\\",
];
const MUTANTS: usize = 600;

/// The scripts of the corpus and of the benchmark.
fn corpus() -> Vec<Vec<u8>> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut scripts = Vec::new();
    for folder in ["bench", "scripts"] {
        let entries = std::fs::read_dir(cases.join(folder)).expect("a folder of cases");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|is| is == "lua")) {
            let text = std::fs::read_to_string(path).expect("UTF-8");
            // A file holds one script, or several below headings that are comments to Lua.
            let mut script = String::new();
            for line in text.lines() {
                if line.starts_with("--- ") {
                    scripts.push(std::mem::take(&mut script).into_bytes());
                }
                script.push_str(line);
                script.push('\n');
            }
            scripts.push(script.into_bytes());
        }
    }
    scripts.retain(|script| !script.is_empty());
    scripts
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

fn mutated(scripts: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut text = scripts[dice.below(scripts.len())].clone();
    for _ in 0..=dice.below(4) {
        let (one, other) = (dice.below(text.len() + 1), dice.below(text.len() + 1));
        let (from, to) = (one.min(other), one.max(other).min(one.min(other) + 40));
        match dice.below(6) {
            0 => drop(text.drain(from..to)),
            1 => {
                let copy = text[from..to].to_vec();
                text.splice(to..to, copy);
            }
            2 => {
                let stranger = &scripts[dice.below(scripts.len())];
                let start = dice.below(stranger.len());
                let end = (start + 1 + dice.below(80)).min(stranger.len());
                text.splice(from..to, stranger[start..end].iter().copied());
            }
            3 if from < text.len() => text[from] ^= 1 << dice.below(8),
            4 => drop(text.splice(from..from, PIECES[dice.below(PIECES.len())].repeat(300).into_bytes())),
            _ => drop(text.splice(from..from, PIECES[dice.below(PIECES.len())].bytes())),
        }
    }
    text
}

#[test]
fn the_corpus_and_what_becomes_of_it() {
    let (lab, scripts) = (property::Lab::new(), corpus());
    assert!(scripts.len() > 100, "only {} scripts", scripts.len());
    let replies = scripts.iter().filter(|script| lab.check(script).is_some()).count();
    assert!(replies > scripts.len() / 2, "only {replies} of {} scripts reply", scripts.len());
    let mut dice = Dice(1);
    let mut replies = 0;
    for _ in 0..MUTANTS {
        replies += usize::from(lab.check(&mutated(&scripts, &mut dice)).is_some());
    }
    // Enough of them still compile to show something.
    assert!((MUTANTS / 10..MUTANTS).contains(&replies), "{replies} of {MUTANTS} reply");
}
