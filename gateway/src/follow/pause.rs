//! How long it is waited between two connections to a server.

use std::time::Duration;

/// After the first connection that fails, and after later ones.
const FIRST: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(1);
/// After a copy was of no use, which costs both servers much.
const MOST: Duration = Duration::from_secs(60);
/// A link that has lasted so long is a success.
const LASTING: Duration = Duration::from_secs(60);

/// How long it is waited next.
#[derive(Debug, Default)]
pub struct Pauses {
    /// Connections since the last one that was a success.
    attempts: u32,
    /// Copies that were of no use.
    copies: u32,
}

impl Pauses {
    /// A copy was of no use, or data has to be copied again.
    pub fn lengthen(&mut self) {
        self.copies += 1;
    }

    /// There was a link for so long.
    pub fn shorten(&mut self, lasted: Duration) {
        self.attempts = 0;
        if lasted >= LASTING {
            self.copies = 0;
        }
    }

    /// The next one.
    pub fn next(&mut self) -> Duration {
        self.attempts += 1;
        let of_attempts = FIRST.saturating_mul(1 << (self.attempts - 1).min(8)).min(LATER);
        match self.copies {
            0 => of_attempts,
            copies => LATER.saturating_mul(1 << (copies - 1).min(8)).min(MOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_shrink() {
        let mut pauses = Pauses::default();
        let next = |pauses: &mut Pauses| pauses.next().as_millis();
        assert_eq!([(); 6].map(|()| next(&mut pauses)), [100, 200, 400, 800, 1000, 1000]);
        pauses.shorten(Duration::from_secs(1));
        assert_eq!(next(&mut pauses), 100);
        let longer = [(); 8].map(|()| {
            pauses.lengthen();
            next(&mut pauses) / 1000
        });
        assert_eq!(longer, [1, 2, 4, 8, 16, 32, 60, 60]);
        pauses.shorten(LASTING);
        assert_eq!(next(&mut pauses), 100);
    }
}
