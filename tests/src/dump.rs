//! All there is in the store, for tests that ask whether something was left of what should never have been.

use resp::Value;

use crate::Client;

/// How a store is looked at: the commands that read all of its keys.
pub struct Dump {
    requests: Vec<Vec<Vec<u8>>>,
}

impl Dump {
    /// One of a store that holds no other keys than these lines read, such as `LRANGE list 0 -1`. A key of another
    /// type shows as an error, one too many by DBSIZE, an expiry to the millisecond.
    pub fn of(reads: &[&str]) -> Dump {
        let mut lines = vec!["DBSIZE".to_owned()];
        for read in reads {
            let key = read.split(' ').nth(1).expect("a command that reads a key");
            lines.extend([(*read).to_owned(), format!("PEXPIRETIME {key}")]);
        }
        let words = |line: &String| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Dump { requests: lines.iter().map(words).collect() }
    }

    /// What to send for it.
    pub fn requests(&self) -> &[Vec<Vec<u8>>] {
        &self.requests
    }

    /// Looks.
    pub fn take(&self, client: &mut Client) -> Vec<Value> {
        client.pipeline(&self.requests)
    }
}
