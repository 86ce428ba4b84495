//! JSON documents.
//!
//! A document is a tree of [`Node`]s: integers of 64 bits exactly, other numbers as doubles, members of objects in the order in
//! which they were added. Commands find values by a [`Path`] and change them by [`Edit`]s.

mod edit;
mod node;
mod parse;
pub mod path;
mod pattern;
mod print;
mod select;

pub use edit::{Change, Edit, Place, put_node, read_node};
pub use node::{Member, Node, Object};
pub use parse::parse;
pub use path::Path;
pub use print::{Layout, Printer, printed};
pub use select::{Found, Matches, prune, select};

use crate::size::allocated;

/// So many arrays and objects may lie in each other.
pub const MAX_DEPTH: usize = 128;

/// So many bytes a document may take, as a string: it is written as one, to the checkpoint and by DUMP.
pub const MAX_BYTES: usize = 512 << 20;

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub struct Json(Box<Document>);

#[derive(Clone, Debug, PartialEq)]
struct Document {
    root: Node,
    /// On the heap, below the root.
    bytes: usize,
}

impl Default for Json {
    fn default() -> Json {
        Json::new(Node::Null)
    }
}

impl Json {
    /// A document of this value.
    pub fn new(root: Node) -> Json {
        let bytes = root.heap();
        Json(Box::new(Document { root, bytes }))
    }

    /// The whole value.
    pub fn root(&self) -> &Node {
        &self.0.root
    }

    /// The value at a place.
    pub fn node(&self, place: &[usize]) -> Option<&Node> {
        place.iter().try_fold(&self.0.root, |node, at| node.child(*at))
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        allocated(size_of::<Document>()) + self.0.bytes
    }

    /// About how many values there are, by the bytes that they take.
    pub fn len_by_bytes(&self) -> usize {
        1 + self.0.bytes / (size_of::<Node>() + size_of::<usize>())
    }
}
