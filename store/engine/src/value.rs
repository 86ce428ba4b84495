//! What a key can hold.

mod form;
pub mod hash;
pub mod json;
pub mod list;
mod numbers;
mod packed;
mod ranked;
pub mod set;
pub mod stream;
pub mod string;
pub mod zset;

pub use hash::Hash;
pub use json::Json;
pub use list::{List, Taken};
pub use set::Set;
pub use stream::Stream;
pub use string::Str;
pub use zset::ZSet;

/// A value of one of Redis' types, or of RedisJSON's.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string or counter.
    String(Str),
    /// A list.
    List(List),
    /// A hash.
    Hash(Hash),
    /// A set.
    Set(Set),
    /// A sorted set.
    ZSet(ZSet),
    /// A stream.
    Stream(Stream),
    /// A JSON document.
    Json(Json),
}

// Every key has one.
const _: () = assert!(size_of::<Value>() == 24);

impl Value {
    /// A string from its bytes; integers in canonical form are kept as numbers.
    pub fn string(bytes: &[u8]) -> Value {
        Value::String(Str::new(bytes))
    }

    /// As TYPE answers.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Hash(_) => "hash",
            Value::Set(_) => "set",
            Value::ZSet(_) => "zset",
            Value::Stream(_) => "stream",
            // As RedisJSON has registered it.
            Value::Json(_) => "ReJSON-RL",
        }
    }

    /// What Redis 7.0 would call the encoding of a value of this size, by its default thresholds. Ours are others;
    /// programs look at this to see whether a value is still small, and DUMP writes it so.
    pub fn encoding(&self) -> &'static str {
        const SHORT: usize = 64;
        let short = |text: &[u8]| text.len() <= SHORT;
        match self {
            Value::String(Str::Int(_)) => "int",
            Value::String(text) if text.len() <= 44 => "embstr",
            Value::String(_) => "raw",
            Value::List(_) => "quicklist",
            Value::Hash(hash) => {
                let small = !hash.is_expiring()
                    && hash.len() <= 512
                    && hash.iter().all(|(field, value)| short(field) && short(value));
                if small { "listpack" } else { "hashtable" }
            }
            Value::Set(set) => {
                if set.is_numbers() {
                    "intset"
                } else {
                    "hashtable"
                }
            }
            Value::ZSet(zset) => {
                let small = zset.len() <= 128 && zset.iter_from(0).all(|(member, _)| short(member));
                if small { "listpack" } else { "skiplist" }
            }
            Value::Stream(_) => "stream",
            // What Redis says of the values of all modules.
            Value::Json(_) => "raw",
        }
    }

    /// Bytes on the heap, exactly as the structures count them.
    pub fn bytes(&self) -> usize {
        match self {
            Value::String(value) => value.bytes(),
            Value::List(value) => value.bytes(),
            Value::Hash(value) => value.bytes(),
            Value::Set(value) => value.bytes(),
            Value::ZSet(value) => value.bytes(),
            Value::Stream(value) => value.bytes(),
            Value::Json(value) => value.bytes(),
        }
    }

    /// Whether this is a collection without elements, which must not stay stored. A stream may, and a document.
    pub fn is_empty_collection(&self) -> bool {
        match self {
            Value::String(_) | Value::Stream(_) | Value::Json(_) => false,
            Value::List(value) => value.is_empty(),
            Value::Hash(value) => value.is_empty(),
            Value::Set(value) => value.is_empty(),
            Value::ZSet(value) => value.is_empty(),
        }
    }
}

/// A type that a key can hold; lets [`crate::Ctx`] offer one function per access instead of one per type.
pub trait Kind: Sized {
    /// The value as this type, if it is one.
    fn of(value: &Value) -> Option<&Self>;
    /// The same, to be changed.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// An empty value of this type.
    fn empty() -> Value;
    /// [`Value::bytes`] where the type is known.
    fn heap_bytes(&self) -> usize;
    /// [`Value::is_empty_collection`] where the type is known.
    fn is_vacant(&self) -> bool;
}

macro_rules! kind {
    ($type:ident, $variant:ident, $empty:expr, $is_vacant:expr) => {
        impl Kind for $type {
            fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::$variant(held) => Some(held),
                    _ => None,
                }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(held) => Some(held),
                    _ => None,
                }
            }

            fn empty() -> Value {
                Value::$variant($empty)
            }

            #[inline]
            fn heap_bytes(&self) -> usize {
                self.bytes()
            }

            #[inline]
            fn is_vacant(&self) -> bool {
                $is_vacant(self)
            }
        }
    };
}

kind!(Str, String, Str::new(b""), |_| false);
kind!(List, List, List::default(), List::is_empty);
kind!(Hash, Hash, Hash::default(), Hash::is_empty);
kind!(Set, Set, Set::default(), Set::is_empty);
kind!(ZSet, ZSet, ZSet::default(), ZSet::is_empty);
kind!(Stream, Stream, Stream::default(), |_| false);
kind!(Json, Json, Json::default(), |_| false);
