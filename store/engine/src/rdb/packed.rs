//! Small collections packed into one string: listpacks, which Redis writes since 7.0, and what it wrote before.
//!
//! The readers check all that Redis checks with `sanitize-dump-payload yes`.

use std::borrow::Cow;

use crate::listpack::{self, END, FORM, LINK, UNCOUNTED, array, small, take};
pub use crate::listpack::{Damage, spelled};

/// What readers say of any collection.
pub const TWICE: Damage = "a collection has an element twice";
pub const ODD: Damage = "an element of a collection has no partner";

/// An element, or that there is none.
pub type Element<'a> = Result<Cow<'a, [u8]>, Damage>;

const LONG: Damage = "something follows the end of a packed collection";
const SIZE: Damage = "a packed collection has another size than it says";
const COUNT: Damage = "a packed collection has a wrong number of elements";

/// Size, position of the last element and count at the start of a ziplist.
const ZIPLIST_HEADER: usize = 10;

/// Whether the count in a header is that of the elements found.
fn counted(header: usize, found: usize) -> bool {
    header == UNCOUNTED || header == found
}

/// The elements of a listpack. After a damaged one nothing follows.
pub fn listpack(bytes: &[u8]) -> Result<impl Iterator<Item = Element<'_>>, Damage> {
    let mut rest = bytes;
    let size = u32::from_le_bytes(array(&mut rest)?);
    let count = usize::from(u16::from_le_bytes(array(&mut rest)?));
    if size as usize != bytes.len() {
        return Err(SIZE);
    }
    Ok(elements(rest, count, |rest| listpack::item(rest).map(listpack::Item::text)))
}

/// Takes elements with `next` until the end, where it compares their number.
fn elements<'a>(
    mut rest: &'a [u8],
    count: usize,
    mut next: impl FnMut(&mut &'a [u8]) -> Element<'a>,
) -> impl Iterator<Item = Element<'a>> {
    let (mut found, mut done) = (0, false);
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let element = match rest {
            [END] if counted(count, found) => {
                done = true;
                return None;
            }
            [END] => Err(COUNT),
            [END, ..] => Err(LONG),
            _ => next(&mut rest),
        };
        done = element.is_err();
        found += 1;
        Some(element)
    })
}

/// A listpack being written.
pub struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    /// One without elements.
    pub fn new() -> Listpack {
        Listpack { bytes: vec![0; listpack::HEADER], count: 0 }
    }

    /// How many bytes it has, the end included.
    pub fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Appends an element, as a number if it spells one.
    pub fn push(&mut self, element: &[u8]) {
        listpack::push(&mut self.bytes, element);
        self.count += 1;
    }

    /// The whole.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let size = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&size.to_le_bytes());
        let count = self.count.min(UNCOUNTED) as u16;
        self.bytes[4..listpack::HEADER].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// The elements of a ziplist, which came before the listpack. After a damaged one nothing follows.
pub fn ziplist(bytes: &[u8]) -> Result<impl Iterator<Item = Element<'_>>, Damage> {
    let mut rest = bytes;
    let size = u32::from_le_bytes(array(&mut rest)?);
    let last = u32::from_le_bytes(array(&mut rest)?) as usize;
    let count = usize::from(u16::from_le_bytes(array(&mut rest)?));
    if size as usize != bytes.len() {
        return Err(SIZE);
    }
    let (mut at, mut before) = (ZIPLIST_HEADER, 0);
    Ok(elements(rest, count, move |rest| {
        let start = rest.len();
        let element = ziplist_element(rest, before)?;
        before = start - rest.len();
        // The last one has to be where the header says.
        if **rest == [END] && at != last {
            return Err(LINK);
        }
        at += before;
        Ok(element)
    }))
}

/// `before`: how long the element before this one was.
fn ziplist_element<'a>(rest: &mut &'a [u8], before: usize) -> Element<'a> {
    let said = match array(rest)? {
        [254] => u32::from_le_bytes(array(rest)?) as usize,
        [said] => usize::from(said),
    };
    if said != before {
        return Err(LINK);
    }
    let [first] = array(rest)?;
    Ok(match first {
        0..0x40 => Cow::Borrowed(take(rest, usize::from(first))?),
        0x40..0x80 => {
            let [second] = array(rest)?;
            Cow::Borrowed(take(rest, usize::from(u16::from_be_bytes([first & 0x3f, second])))?)
        }
        0x80 => {
            let len = u32::from_be_bytes(array(rest)?);
            Cow::Borrowed(take(rest, len as usize)?)
        }
        0xc0 => spelled(small(take(rest, 2)?)),
        0xd0 => spelled(small(take(rest, 4)?)),
        0xe0 => spelled(i64::from_le_bytes(array(rest)?)),
        0xf0 => spelled(small(take(rest, 3)?)),
        0xfe => spelled(small(take(rest, 1)?)),
        0xf1..=0xfd => spelled(i64::from(first & 0xf) - 1),
        _ => return Err(FORM),
    })
}

/// The members of an intset, which are numbers in ascending order.
pub fn intset(bytes: &[u8]) -> Result<impl Iterator<Item = Result<i64, Damage>>, Damage> {
    let mut rest = bytes;
    let width = u32::from_le_bytes(array(&mut rest)?) as usize;
    let count = u32::from_le_bytes(array(&mut rest)?) as usize;
    if ![2, 4, 8].contains(&width) {
        return Err(FORM);
    }
    if count == 0 || count.checked_mul(width) != Some(rest.len()) {
        return Err(SIZE);
    }
    let mut before = None;
    Ok(rest.chunks_exact(width).map(move |bytes| {
        let number = match bytes.try_into() {
            Ok(wide) => i64::from_le_bytes(wide),
            Err(_) => small(bytes),
        };
        if before.replace(number) >= Some(number) {
            Err("the numbers of a set are not in order")
        } else {
            Ok(number)
        }
    }))
}

/// `numbers`, which ascend, as an intset.
pub fn write_intset(numbers: &[i64]) -> Vec<u8> {
    let fits = |width: i64| {
        let most = 1 << (8 * width - 1);
        numbers.iter().all(|number| (-most..most).contains(number))
    };
    let width = if fits(2) {
        2
    } else if fits(4) {
        4
    } else {
        8
    };
    let mut bytes = Vec::with_capacity(8 + width * numbers.len());
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()[..width]));
    bytes
}

/// Fields and values of a zipmap, Redis' small hash before 2.6, one after the other. After a damaged one nothing follows.
pub fn zipmap(bytes: &[u8]) -> Result<impl Iterator<Item = Element<'_>>, Damage> {
    fn length(rest: &mut &[u8]) -> Result<usize, Damage> {
        match array(rest)? {
            [254] => Ok(u32::from_le_bytes(array(rest)?) as usize),
            [len] => Ok(usize::from(len)),
        }
    }
    let mut rest = bytes;
    let [count] = array(&mut rest)?;
    let count = if count < 254 { 2 * usize::from(count) } else { UNCOUNTED };
    let mut is_value = true;
    Ok(elements(rest, count, move |rest| {
        is_value = !is_value;
        let len = length(rest)?;
        if !is_value {
            return take(rest, len).map(Cow::Borrowed);
        }
        // Bytes behind the value that nobody uses.
        let [free] = array(rest)?;
        let value = take(rest, len)?;
        take(rest, usize::from(free))?;
        Ok(Cow::Borrowed(value))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listpack::SHORT;

    fn texts<'a>(elements: Result<impl Iterator<Item = Element<'a>>, Damage>) -> Result<String, Damage> {
        let all: Result<Vec<_>, _> = elements?.collect();
        Ok(all?.iter().map(|text| text.escape_ascii().to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_listpack_of_everything_comes_back() {
        let numbers = [0, 127, 128, -1, 4095, -4096, 4096, -4097, i16::MIN.into(), i16::MAX.into(), 1 << 15];
        let wide = [
            -(1 << 23),
            (1 << 23) - 1,
            1 << 23,
            i32::MIN.into(),
            i32::MAX.into(),
            1 << 31,
            i64::MIN,
            i64::MAX,
        ];
        let mut wanted: Vec<Vec<u8>> =
            numbers.iter().chain(&wide).map(|number| number.to_string().into_bytes()).collect();
        // Around the sizes at which an element and the length behind it grow.
        let sizes =
            [0, 1, 63, 64, 125, 126, 127, 4095, 4096, 16377, 16378, 16379, 20_000, 2_097_146, 2_097_147];
        wanted.extend(sizes.iter().map(|len| vec![b'x'; *len]));
        let mut pack = Listpack::new();
        wanted.iter().for_each(|element| pack.push(element));
        let len = pack.len();
        let bytes = pack.finish();
        assert_eq!(bytes.len(), len);
        let found: Result<Vec<_>, _> = listpack(&bytes).expect("a header").collect();
        assert!(found.expect("elements") == wanted);
    }

    #[test]
    fn more_elements_than_a_header_can_count() {
        for count in [65_534, 65_535, 65_536] {
            let mut pack = Listpack::new();
            (0..count).for_each(|_| pack.push(b"1"));
            assert_eq!(listpack(&pack.finish()).expect("a header").filter(Result::is_ok).count(), count);
        }
    }

    #[test]
    fn damaged_listpacks() {
        for (bytes, wanted) in [
            (&b"\x0c\0\0\0\x02\0\x81a\x02\x05\x01\xff"[..], Ok("a 5")),
            (b"\x07\0\0\0\0\0\xff", Ok("")),
            (b"\x07\0\0\0\xff\xff\xff", Ok("")),
            (b"\x06\0\0\0\0\0", Err(SHORT)),
            (b"\x06\0\0\0\0", Err(SHORT)),
            (b"\x08\0\0\0\0\0\xff", Err(SIZE)),
            (b"\x08\0\0\0\0\0\xff\xff", Err(LONG)),
            (b"\x07\0\0\0\x01\0\xff", Err(COUNT)),
            (b"\x0a\0\0\0\x02\0\x81a\x02\xff", Err(COUNT)),
            (b"\x0a\0\0\0\x01\0\x81a\x01\xff", Err(LINK)),
            (b"\x09\0\0\0\x01\0\x81a\x02", Err(SHORT)),
            (b"\x0a\0\0\0\x01\0\xbfa\x02\xff", Err(SHORT)),
            (b"\x0c\0\0\0\x01\0\xf0\xff\xff\xff\xff\xff", Err(SHORT)),
            (b"\x09\0\0\0\x01\0\xf5\x01\xff", Err(FORM)),
        ] {
            assert_eq!(
                texts(listpack(bytes)).as_deref(),
                wanted.as_ref().copied(),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn damaged_ziplists() {
        for (bytes, wanted) in [
            (&b"\x11\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xfe\xfb\xff"[..], Ok("a -5")),
            (b"\x0b\0\0\0\x0a\0\0\0\0\0\xff", Ok("")),
            // The length of the one before in five bytes, where one would do.
            (b"\x14\0\0\0\x0d\0\0\0\x02\0\0\x01a\xfe\x03\0\0\0\xf6\xff", Ok("a 5")),
            (b"\x11\0\0\0\x0a\0\0\0\x02\0\0\x01a\x03\xfe\xfb\xff", Err(LINK)),
            (b"\x11\0\0\0\x0d\0\0\0\x02\0\0\x01a\x02\xfe\xfb\xff", Err(LINK)),
            (b"\x11\0\0\0\x0d\0\0\0\x03\0\0\x01a\x03\xfe\xfb\xff", Err(COUNT)),
            (b"\x12\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xfe\xfb\xff", Err(SIZE)),
            (b"\x0e\0\0\0\x0a\0\0\0\x01\0\0\x05a\xff", Err(SHORT)),
            (b"\x0d\0\0\0\x0a\0\0\0\x01\0\0\xff\xff", Err(FORM)),
            (b"\x0d\0\0\0\x0a\0\0\0\x01\0\0\x90\xff", Err(FORM)),
        ] {
            assert_eq!(
                texts(ziplist(bytes)).as_deref(),
                wanted.as_ref().copied(),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn intsets() {
        for numbers in [&[-32768, 0, 32767][..], &[-32769, 1], &[0, 1 << 31], &[i64::MIN, i64::MAX]] {
            let bytes = write_intset(numbers);
            let found: Result<Vec<_>, _> = intset(&bytes).expect("a header").collect();
            assert_eq!(found.as_deref(), Ok(numbers));
        }
        for (bytes, wanted) in [
            (&b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0"[..], "the numbers of a set are not in order"),
            (b"\x02\0\0\0\x02\0\0\0\x01\0\0\0", "the numbers of a set are not in order"),
            (b"\x02\0\0\0\x02\0\0\0\x01\0", SIZE),
            (b"\x02\0\0\0\0\0\0\0", SIZE),
            (b"\x08\0\0\0\xff\xff\xff\xff\x01\0", SIZE),
            (b"\x03\0\0\0\x01\0\0\0\x01\0\0", FORM),
            (b"\x02\0\0\0\x01\0", SHORT),
        ] {
            let found = intset(bytes).and_then(|numbers| numbers.collect::<Result<Vec<_>, _>>());
            assert_eq!(found, Err(wanted), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn zipmaps() {
        for (bytes, wanted) in [
            (&b"\x02\x01a\x01\x001\x00\x02\x01xy.\xff"[..], Ok("a 1  xy")),
            (b"\xfe\x01a\x01\x001\xff", Ok("a 1")),
            (b"\0\xff", Ok("")),
            (b"\x02\x01a\x01\x001\xff", Err(COUNT)),
            (b"\x01\x01a\x01\x001\xff\xff", Err(LONG)),
            (b"\x01\x01a\x01\x001", Err(SHORT)),
            (b"\x01\x01a\xff\x001\xff", Err(LONG)),
            (b"\x01\x01a\xfe\xff\xff\xff\xff\x001\xff", Err(SHORT)),
            (b"", Err(SHORT)),
        ] {
            assert_eq!(texts(zipmap(bytes)).as_deref(), wanted.as_ref().copied(), "{}", bytes.escape_ascii());
        }
    }
}
