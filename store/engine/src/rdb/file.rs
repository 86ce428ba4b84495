//! Files: a header, what is known about the whole, libraries of functions, the keys of each database, a checksum.
//!
//! Redis reads what is written here. What it does not know (sticky keys, and since 7.0 scripts) stands in fields that
//! it skips.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use super::codec::{Decoder, Fault, write_length, write_string};
use super::crc64::crc64;
use super::key::{AUX, EXPIRE_MS, FREQ, IDLE, STICKY, write_aux, write_key};
use super::template::{TEMPLATE, Templates};
use super::{Dialect, KeyMeta, LIBRARY, LONGEST, Version, module, object};
use crate::snapshot::SnapshotPart;
use crate::{DATABASES, Entry, Stamp, Work};

const SIGNATURE: &[u8] = b"REDIS";
/// That of Valkey since 9.0, whose versions have three digits.
const VALKEY_SIGNATURE: &[u8] = b"VALKEY";
/// What was being imported, in Valkey.
const SLOT_IMPORT: u8 = 243;
/// A command that a client has sent while the file was written, in Valkey.
const UPDATE: u8 = 242;
const SLOT_INFO: u8 = 244;
const FUNCTION_PRE_GA: u8 = 246;
const MODULE_AUX: u8 = 247;
const RESIZE_DATABASE: u8 = 251;
const EXPIRE_S: u8 = 253;
const SELECT_DATABASE: u8 = 254;
const END: u8 = 255;

/// The field with the text of a script, as in Redis before 7.0.
const SCRIPT: &[u8] = b"lua";

/// The first version with a checksum.
const FIRST_SUMMED: u16 = 5;
/// Bytes that are read or written at once.
const BLOCK: usize = 64 * 1024;

/// Writes a file.
pub struct RdbWriter<W: Write> {
    out: Summed<W>,
    /// What the keys that follow are of.
    database: Option<usize>,
    reader: Dialect,
}

impl<W: Write> RdbWriter<W> {
    /// Begins a file of this version.
    pub fn new(out: W, version: Version) -> io::Result<RdbWriter<W>> {
        let mut out = Summed { inner: out, block: Vec::with_capacity(BLOCK), sum: 0 };
        let (number, reader) = (version.number(), version.dialect());
        match reader {
            Dialect::Redis => write!(out, "REDIS{number:04}")?,
            Dialect::Valkey => write!(out, "VALKEY{number:03}")?,
        }
        Ok(RdbWriter { out, database: None, reader })
    }

    /// A field about the whole, such as `redis-ver`.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        write_aux(&mut self.out, name, value)
    }

    /// The text of a script that EVALSHA finds.
    pub fn script(&mut self, text: &[u8]) -> io::Result<()> {
        self.aux(SCRIPT, text)
    }

    /// The text of a library of functions.
    pub fn function_library(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.write_all(&[LIBRARY])?;
        write_string(&mut self.out, text)
    }

    /// The keys that follow are of this database. It has so many, so many of which expire; that helps the reader and
    /// need not be exact.
    pub fn database(&mut self, db: usize, keys: usize, expiring: usize) -> io::Result<()> {
        self.select(db)?;
        self.out.write_all(&[RESIZE_DATABASE])?;
        write_length(&mut self.out, keys as u64)?;
        write_length(&mut self.out, expiring as u64)
    }

    /// A key.
    pub fn key(&mut self, key: &[u8], entry: &Entry, meta: KeyMeta) -> io::Result<()> {
        write_key(&mut self.out, key, entry, meta, self.reader)
    }

    /// Keys of a snapshot, which was made for the same reader, or the next bytes of one.
    pub fn part(&mut self, part: &SnapshotPart) -> io::Result<()> {
        self.select(part.db)?;
        self.out.write_all(&part.bytes)
    }

    fn select(&mut self, db: usize) -> io::Result<()> {
        if self.database.replace(db) == Some(db) {
            return Ok(());
        }
        self.out.write_all(&[SELECT_DATABASE])?;
        write_length(&mut self.out, db as u64)
    }

    /// Ends the file; what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[END])?;
        self.out.flush()?;
        let sum = self.out.sum.to_le_bytes();
        self.out.write_all(&sum)?;
        self.out.flush()?;
        Ok(self.out.inner)
    }
}

impl RdbWriter<Vec<u8>> {
    /// Bytes that can be taken.
    pub fn written(&self) -> usize {
        self.out.inner.len()
    }

    /// Takes what was written so far, except for the last block.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out.inner)
    }
}

/// Collects what is written into blocks, and sums them up.
struct Summed<W> {
    inner: W,
    block: Vec<u8>,
    /// Of all that was handed on.
    sum: u64,
}

impl<W: Write> Summed<W> {
    fn hand_on(&mut self) -> io::Result<()> {
        self.sum = crc64(self.sum, &self.block);
        self.inner.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&bytes[..taken]);
        if self.block.len() == BLOCK {
            self.hand_on()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hand_on()?;
        self.inner.flush()
    }
}

/// What a file says, in its order.
#[derive(Debug, PartialEq)]
pub enum RdbItem {
    /// A field about the whole.
    Aux {
        /// Such as `redis-ver`.
        name: Vec<u8>,
        /// Its content.
        value: Vec<u8>,
    },
    /// The text of a script.
    Script(Vec<u8>),
    /// The text of a library of functions.
    Library(Vec<u8>),
    /// A key. That it may have expired, and that it may come twice in a damaged file, is for the caller to see.
    Key {
        /// Its database, below [`DATABASES`].
        db: usize,
        /// Its name.
        key: Vec<u8>,
        /// What it holds.
        entry: Entry,
        /// What else is said of it.
        meta: KeyMeta,
    },
}

/// Reads a file, event by event, up to its end or to the first fault. It reads ahead: what follows the end of the
/// file is lost.
pub struct RdbReader<R: Read> {
    decoder: Decoder<Summing<R>>,
    version: u16,
    dialect: Dialect,
    templates: Templates,
    db: usize,
    /// What has been said of the next key.
    expire_at_ms: Option<NonZeroU64>,
    meta: KeyMeta,
    done: bool,
}

impl<R: Read> RdbReader<R> {
    /// Reads the header.
    pub fn new(source: R) -> Result<RdbReader<R>, Fault> {
        RdbReader::begin(Decoder::new(Summing::new(source)))
    }

    /// The same for a file that comes from elsewhere: strings longer than commands make them are refused.
    pub fn limited(source: R) -> Result<RdbReader<R>, Fault> {
        RdbReader::begin(Decoder::limited(Summing::new(source), LONGEST))
    }

    fn begin(mut decoder: Decoder<Summing<R>>) -> Result<RdbReader<R>, Fault> {
        let header: [u8; 9] = decoder.bytes()?;
        let signatures = [(SIGNATURE, Dialect::Redis), (VALKEY_SIGNATURE, Dialect::Valkey)].into_iter();
        let found =
            signatures.filter_map(|(signature, of)| Some((header.strip_prefix(signature)?, of))).next();
        let (digits, dialect) = found.ok_or_else(|| decoder.damage("this is no RDB file"))?;
        let version = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let version =
            version.filter(|version| *version > 0 && Dialect::of_version(*version) == Some(dialect));
        let version = version.ok_or_else(|| decoder.foreign("the version of this RDB file"))?;
        let (templates, expire_at_ms, meta) = (Templates::default(), None, KeyMeta::default());
        Ok(RdbReader { decoder, version, dialect, templates, db: 0, expire_at_ms, meta, done: false })
    }

    /// How many bytes have been read.
    pub fn offset(&self) -> u64 {
        self.decoder.offset()
    }

    fn event(&mut self) -> Result<Option<RdbItem>, Fault> {
        // A time that is over for ever is over as the first millisecond of all is.
        let expiry = |at_ms: i64| NonZeroU64::new(at_ms.max(1) as u64);
        loop {
            let from = &mut self.decoder;
            match from.byte()? {
                EXPIRE_S => self.expire_at_ms = expiry(i64::from(i32::from_le_bytes(from.bytes()?)) * 1000),
                EXPIRE_MS => self.expire_at_ms = expiry(i64::from_le_bytes(from.bytes()?)),
                IDLE => self.meta.idle_s = Some(from.length()?),
                FREQ => self.meta.freq = Some(from.byte()?),
                SELECT_DATABASE => {
                    let db = from.length()?;
                    self.db = usize::try_from(db)
                        .ok()
                        .filter(|db| *db < DATABASES)
                        .ok_or_else(|| from.foreign("more than 16 databases"))?;
                }
                RESIZE_DATABASE => {
                    from.length()?;
                    from.length()?;
                }
                SLOT_INFO => {
                    from.length()?;
                    from.length()?;
                    from.length()?;
                }
                AUX => match (from.owned()?, from.owned()?) {
                    (name, value) if name == STICKY => self.meta.sticky = value == b"1",
                    (name, text) if name == SCRIPT => return Ok(Some(RdbItem::Script(text))),
                    (name, value) => return Ok(Some(RdbItem::Aux { name, value })),
                },
                LIBRARY => return Ok(Some(RdbItem::Library(from.owned()?))),
                FUNCTION_PRE_GA => return Err(from.foreign("functions of a Redis before its release")),
                MODULE_AUX => {
                    let name = module::type_name(from.length()?);
                    return Err(from.foreign(format!("data of the module type {name}")));
                }
                module::KEY_META if self.dialect == Dialect::Redis => module::skip_key_meta(from)?,
                SLOT_IMPORT if self.dialect == Dialect::Valkey => {
                    from.owned()?;
                    for _ in 0..from.length()? {
                        from.length()?;
                        from.length()?;
                    }
                }
                TEMPLATE if self.dialect == Dialect::Redis => self.templates.add(from)?,
                UPDATE if self.dialect == Dialect::Valkey => {
                    return Err(from.foreign("changes in a file of Valkey 9.2"));
                }
                END => {
                    self.check_sum()?;
                    return Ok(None);
                }
                kind => {
                    let key = from.owned()?;
                    let (work, templates) = (Work::unlimited(), &self.templates);
                    let value = object::read(kind, self.dialect, templates, from, &work)?;
                    let (expire_at_ms, meta) = (self.expire_at_ms.take(), std::mem::take(&mut self.meta));
                    // Redis has been known to write empty collections, and skips them.
                    if let Some(value) = value {
                        let entry = Entry { expire_at_ms, ..Entry::new(value, Stamp::default()) };
                        return Ok(Some(RdbItem::Key { db: self.db, key, entry, meta }));
                    }
                }
            }
        }
    }

    fn check_sum(&mut self) -> Result<(), Fault> {
        if self.version < FIRST_SUMMED {
            return Ok(());
        }
        let wanted = self.decoder.source().sum();
        let sum = u64::from_le_bytes(self.decoder.bytes()?);
        // 0 stands where Redis was told to compute none.
        if sum != 0 && sum != wanted { Err(self.decoder.damage("the checksum is another")) } else { Ok(()) }
    }
}

impl<R: Read> Iterator for RdbReader<R> {
    type Item = Result<RdbItem, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let event = self.event().transpose();
        self.done = !matches!(event, Some(Ok(_)));
        event
    }
}

/// Reads in blocks, and sums up what was taken out of them.
struct Summing<R> {
    inner: R,
    block: Box<[u8]>,
    /// What of the block is filled, and how much of that was taken.
    filled: usize,
    taken: usize,
    /// Of the blocks before.
    sum: u64,
}

impl<R: Read> Summing<R> {
    fn new(inner: R) -> Summing<R> {
        Summing { inner, block: vec![0; BLOCK].into(), filled: 0, taken: 0, sum: 0 }
    }

    /// Of all that was taken.
    fn sum(&self) -> u64 {
        crc64(self.sum, &self.block[..self.taken])
    }
}

impl<R: Read> Read for Summing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.filled {
            self.sum = self.sum();
            (self.filled, self.taken) = (0, 0);
            self.filled = self.inner.read(&mut self.block)?;
        }
        let count = into.len().min(self.filled - self.taken);
        into[..count].copy_from_slice(&self.block[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    /// A file of this version with this body; `sum` in place of its checksum.
    fn file(version: &str, body: &[u8], sum: Option<u64>) -> Vec<u8> {
        let mut bytes = [SIGNATURE, version.as_bytes(), body, &[END]].concat();
        let sum = sum.unwrap_or_else(|| crc64(0, &bytes));
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<RdbItem>, String> {
        let reader = RdbReader::new(bytes).map_err(|fault| fault.to_string())?;
        reader.collect::<Result<_, _>>().map_err(|fault| fault.to_string())
    }

    #[test]
    fn files_of_valkey_and_times_of_fields_are_read() {
        let mut valkey = file("0010", b"\x16\x01k\x01\x01f\x01v\x05\0\0\0\0\0\0\0", Some(0));
        valkey[..9].copy_from_slice(b"VALKEY080");
        let events = read(&valkey).expect("a sound file");
        let [RdbItem::Key { key, entry, .. }] = &events[..] else { panic!("{events:?}") };
        let crate::Value::Hash(hash) = &entry.value else { panic!("{entry:?}") };
        assert_eq!(hash.expiry(b"f"), NonZeroU64::new(5));
        let mut writer = RdbWriter::new(Vec::new(), Version::default()).expect("memory takes all");
        writer.key(key, entry, KeyMeta::default()).expect("memory takes all");
        let ours = writer.finish().expect("memory takes all");
        assert_eq!(ours[9], crate::rdb::kind::HASH_METADATA);
        assert_eq!(read(&ours).as_ref(), Ok(&events));
        valkey[8] = b'1';
        assert_eq!(read(&valkey).as_ref(), Ok(&events), "of Valkey 9.2");
        valkey[8] = b'2';
        assert!(read(&valkey).is_err());
        for (version, start) in [
            (Version::Redis7_4, &b"REDIS0012\x18\x01k"[..]),
            (Version::Valkey9_0, b"VALKEY080\x16\x01k\x01\x01f\x01v\x05"),
        ] {
            let mut writer = RdbWriter::new(Vec::new(), version).expect("memory takes all");
            writer.key(key, entry, KeyMeta::default()).expect("memory takes all");
            let ours = writer.finish().expect("memory takes all");
            assert!(ours.starts_with(start), "{}", ours.escape_ascii());
            assert_eq!(read(&ours).as_ref(), Ok(&events));
        }
    }

    #[test]
    fn templates_are_known_to_the_keys_behind_them() {
        let template = b"\xf2\x07\x02\x01a\x01b\xf2\x08\x01\x01c";
        let keys = b"\x1e\x01k\x0d\x0d\0\0\0\x03\0\x07\x01\x01\x01\x02\x01\xff\x20\x01l\x08\x01x";
        let events = read(&file("0015", &[&template[..], keys].concat(), None)).expect("a sound file");
        let fields = |event: &RdbItem| match event {
            RdbItem::Key { entry: Entry { value: Value::Hash(hash), .. }, .. } => {
                hash.iter().map(|pair| [pair.0, pair.1].concat()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(
            events.iter().map(fields).collect::<Vec<_>>(),
            [vec![b"a1".to_vec(), b"b2".into()], vec![b"cx".into()]]
        );
        let twice = [&template[..12], b"\xf2\x07\0"].concat();
        let wanted = "byte 24: damaged data: two templates of hashes have the same number";
        assert_eq!(read(&file("0015", &twice, None)), Err(wanted.into()));
        let unknown = [template, &b"\x20\x01l\x09\x01x"[..]].concat();
        let wanted = "byte 25: damaged data: a hash has the fields of an unknown template";
        assert_eq!(read(&file("0015", &unknown, None)), Err(wanted.into()));
    }

    #[test]
    fn a_mark_means_what_its_server_says() {
        let wanted = Ok(vec![key(0, 0, KeyMeta::default())]);
        // Redis: what modules say of a key. Valkey: slots that were being imported.
        let redis = b"\xf3\x01\x01\0\0\0\x01\x05\0\0\x01k\x01v";
        let valkey = b"\xf3\x03job\x02\x01\x02\x40\xff\x41\0\0\x01k\x01v";
        let of_valkey = |body: &[u8]| [b"VALKEY080", body, &[END], &[0; 8]].concat();
        assert_eq!(read(&file("0013", redis, None)), wanted);
        assert_eq!(read(&of_valkey(valkey)), wanted);
        assert!(read(&file("0013", valkey, None)).is_err());
        assert!(read(&of_valkey(redis)).is_err());
        let update = "byte 10: not supported: changes in a file of Valkey 9.2";
        assert_eq!(read(&of_valkey(b"\xf2\x01")), Err(update.into()));
    }

    fn key(db: usize, expire_at_ms: u64, meta: KeyMeta) -> RdbItem {
        let entry = Entry {
            expire_at_ms: NonZeroU64::new(expire_at_ms),
            ..Entry::new(Value::string(b"v"), Stamp::default())
        };
        RdbItem::Key { db, key: b"k".to_vec(), entry, meta }
    }

    #[test]
    fn what_stands_before_a_key_is_of_that_key() {
        let used = KeyMeta { idle_s: Some(70), ..KeyMeta::default() };
        let often = KeyMeta { freq: Some(9), sticky: true, ..KeyMeta::default() };
        for (body, wanted) in [
            (&b"\0\x01k\x01v"[..], vec![key(0, 0, KeyMeta::default())]),
            (b"\xfd\x01\0\0\0\0\x01k\x01v", vec![key(0, 1000, KeyMeta::default())]),
            (b"\xfc\x02\0\0\0\0\0\0\0\0\x01k\x01v", vec![key(0, 2, KeyMeta::default())]),
            // Long ago, as Redis may write it too.
            (b"\xfd\0\0\0\x80\0\x01k\x01v", vec![key(0, 1, KeyMeta::default())]),
            (b"\xfe\x0f\xfb\x01\x40\xff\0\x01k\x01v", vec![key(15, 0, KeyMeta::default())]),
            (b"\xf8\x40\x46\0\x01k\x01v\0\x01k\x01v", vec![key(0, 0, used), key(0, 0, KeyMeta::default())]),
            (
                b"\xf4\x01\x02\x03\xfa\x10moonshard-sticky\xc0\x01\xf9\x09\0\x01k\x01v\0\x01k\x01v",
                vec![key(0, 0, often), key(0, 0, KeyMeta::default())],
            ),
            // An empty set takes along what was said of it.
            (b"\xf9\x09\x02\x01e\0\0\x01k\x01v", vec![key(0, 0, KeyMeta::default())]),
            (b"\xfa\x03lua\x01x\xf5\x01y", vec![RdbItem::Script(b"x".into()), RdbItem::Library(b"y".into())]),
            (b"\xfa\x01n\x01v", vec![RdbItem::Aux { name: b"n".into(), value: b"v".into() }]),
        ] {
            for version in ["0005", "0010", "0015"] {
                assert_eq!(read(&file(version, body, None)).as_ref(), Ok(&wanted), "{}", body.escape_ascii());
            }
            // Told to compute no checksum, and from a time when there was none.
            assert_eq!(read(&file("0010", body, Some(0))).as_ref(), Ok(&wanted));
            let old = file("0004", body, None);
            assert_eq!(read(&old[..old.len() - 8]).as_ref(), Ok(&wanted));
        }
    }

    #[test]
    fn what_is_refused_is_named_with_its_place() {
        for (bytes, wanted) in [
            (file("0016", b"", None), "byte 9: not supported: the version of this RDB file"),
            (file("0080", b"", None), "byte 9: not supported: the version of this RDB file"),
            (b"VALKEY012\xff".into(), "byte 9: not supported: the version of this RDB file"),
            (file("0000", b"", None), "byte 9: not supported: the version of this RDB file"),
            (file("001x", b"", None), "byte 9: not supported: the version of this RDB file"),
            (b"REDES0010\xff".into(), "byte 9: damaged data: this is no RDB file"),
            (b"REDIS".into(), "byte 0: the data end here"),
            (b"REDIS0010".into(), "byte 9: the data end here"),
            (file("0010", b"", Some(1)), "byte 18: damaged data: the checksum is another"),
            (file("0010", b"\xfe\x10", None), "byte 11: not supported: more than 16 databases"),
            (
                file("0010", b"\xf7\x81\xff\xff\xff\xff\xff\xff\xff\xff\x02", None),
                "byte 19: not supported: data of the module type _________",
            ),
            (
                file("0010", b"\xf6\x10", None),
                "byte 10: not supported: functions of a Redis before its release",
            ),
            (file("0010", b"\x0f\x01k", None), "byte 13: damaged data: a length is missing"),
            (
                file("0010", b"\x06\x01k", None),
                "byte 12: not supported: values of modules of a Redis before its release",
            ),
            (
                file("0010", b"\x07\x01k\x81\0\0\0\0\0\0\0\x03", None),
                "byte 21: not supported: values of the module type AAAAAAAAA",
            ),
            (
                file("0012", b"\x17\x01k", None),
                "byte 12: not supported: hashes of a Redis before its release",
            ),
            (file("0010", b"\x22\x01k", None), "byte 12: damaged data: a value of unknown type"),
            (
                file("0010", b"\x02\x01k\x02\x01a\x01a", None),
                "byte 17: damaged data: a collection has an element twice",
            ),
        ] {
            assert_eq!(read(&bytes), Err(wanted.into()), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn nothing_comes_behind_a_fault() {
        let bytes = file("0010", b"\x02\x01k\x02\x01a\x01a\0\x01k\x01v", None);
        let mut reader = RdbReader::new(&*bytes).expect("a header");
        assert!(matches!(reader.next(), Some(Err(_))));
        assert!(reader.next().is_none());
        assert_eq!(reader.offset(), 17);
    }

    /// A source and a sink that take what they like at once.
    struct Slow<T>(T);

    impl<R: Read> Read for Slow<R> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let few = into.len().min(7);
            self.0.read(&mut into[..few])
        }
    }

    impl<W: Write> Write for Slow<W> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(&bytes[..bytes.len().min(7)])
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_come_and_go() {
        let mut writer = RdbWriter::new(Slow(Vec::new()), Version::default()).expect("memory takes all");
        let entry = Entry::new(Value::string(&vec![b'x'; 3 * BLOCK]), Stamp::default());
        for at in 0..3u8 {
            writer.key(&[at], &entry, KeyMeta::default()).expect("memory takes all");
        }
        let Slow(bytes) = writer.finish().expect("memory takes all");
        let events: Vec<_> = RdbReader::new(Slow(&*bytes)).expect("a header").map(Result::ok).collect();
        assert_eq!(events.len(), 3);
        for (event, at) in events.into_iter().zip(0u8..) {
            let wanted =
                RdbItem::Key { db: 0, key: vec![at], entry: entry.clone(), meta: KeyMeta::default() };
            assert!(event == Some(wanted));
        }
    }

    #[test]
    fn a_failing_source_and_a_failing_sink_are_told_of() {
        struct Broken;

        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }

        let start = &b"REDIS0010"[..];
        let mut reader = RdbReader::new(start.chain(Broken)).expect("a header");
        let fault = reader.next().expect("an event").expect_err("a fault");
        assert_eq!(fault.to_string(), "byte 9: the disk is gone");
        let mut little = [0; 4];
        assert!(
            RdbWriter::new(&mut little[..], Version::default()).expect("not yet written").finish().is_err()
        );
    }
}
