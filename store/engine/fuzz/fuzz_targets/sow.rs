//! Seeds of fuzz targets and inputs made of them, the same ones in every run: what `make test` tries of them.

use std::path::Path;

/// Words and numbers that change what an input means more often than a random byte does.
const PIECES: [&[u8]; 22] = [
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
    b"0",
    b"-1",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"1e308",
    b"nan",
    b"-inf",
    b"*",
    b"[",
    b"\\",
    b"\n",
    b" ",
    b"-",
    b"(",
    b"u64",
];

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

fn mutated(seed: &[u8], strange: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut input = seed.to_vec();
    for _ in 0..=dice.below(3) {
        let (from, len) = (dice.below(input.len() + 1), dice.below(12));
        let to = (from + len).min(input.len());
        match dice.below(6) {
            0 => drop(input.drain(from..to)),
            1 => {
                let copy = input[from..to].to_vec();
                input.splice(to..to, copy);
            }
            2 => {
                let start = dice.below(strange.len());
                let end = (start + 1 + dice.below(40)).min(strange.len());
                input.splice(from..to, strange[start..end].iter().copied());
            }
            3 if from < input.len() => input[from] ^= 1 << dice.below(8),
            4 => input.truncate(from),
            _ => drop(input.splice(from..from, PIECES[dice.below(PIECES.len())].iter().copied())),
        }
    }
    input
}

/// Tries the seeds in a folder, and so many inputs made of each.
pub fn run_seeds(dir: &Path, mutants: usize, property: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let files = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", dir.display());
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).expect("a file")).collect();
    let attempt = |input: &[u8], of: &Path| {
        if let Err(panic) = std::panic::catch_unwind(|| property(input)) {
            eprintln!("\"{}\", made of {}", input.escape_ascii(), of.display());
            std::panic::resume_unwind(panic);
        }
    };
    let mut dice = Dice(1);
    for (seed, path) in seeds.iter().zip(&paths) {
        attempt(seed, path);
        for _ in 0..mutants {
            let strange = &seeds[dice.below(seeds.len())];
            attempt(&mutated(seed, strange, &mut dice), path);
        }
    }
}
