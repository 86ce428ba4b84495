//! What all encodings are made of: numbers as LEB128, byte strings behind their length, scores as the bits of their double.
//! Reading trusts nothing.

/// Bytes that are not what was written: cut off, or never ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Writes a number, small ones in few bytes.
pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes bytes behind their length.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// What is left to be read.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    /// What [`put_number`] wrote.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    /// A count or position.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed)
    }

    /// What [`put_bytes`] wrote.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.count()?;
        self.take(len)
    }

    /// A score; never NaN.
    pub fn score(&mut self) -> Result<f64, Malformed> {
        let bits = self.take(8)?.try_into().map_err(|_| Malformed)?;
        let score = f64::from_le_bytes(bits);
        if score.is_nan() { Err(Malformed) } else { Ok(score) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(number: u64) {
            let mut out = Vec::new();
            put_number(number, &mut out);
            let mut input = Input(&out);
            prop_assert_eq!(input.number(), Ok(number));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn any_bytes_are_a_number_or_refused(bytes: Vec<u8>) {
            let _ = Input(&bytes).number();
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_malformed() {
        assert_eq!(Input(&[0xFF; 9]).number(), Err(Malformed));
        let most = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(Input(&most).number(), Ok(u64::MAX));
        let more = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02];
        assert_eq!(Input(&more).number(), Err(Malformed));
    }
}
