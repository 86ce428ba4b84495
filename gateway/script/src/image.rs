//! Memory images: what a sandbox is put back to.
//!
//! The base image is the guest's memory after its libraries were opened. A known script has an image of its
//! own, with the script compiled, kept as the pages that differ from the base.
//!
//! Rewinding puts back every byte that differs, not only what an honest guest could have touched: the guest is
//! hostile. Which pages cannot differ is known from their write protection, see [`crate::guard`].

use std::ops::Range;
use std::sync::Arc;

use crate::guard::PAGE;
use crate::tier::Memory;

const PAGES_OF_A_WORD: usize = u64::BITS as usize;
/// What a page of an image takes.
const PAGE_BYTES: usize = PAGE + size_of::<(usize, Arc<[u8; PAGE]>)>();

/// The memory of a guest that has just been initialised.
pub(crate) struct BaseImage {
    bytes: Box<[u8]>,
    /// Stretches of `bytes` that are not all zero, in whole pages. The rest is cheaper to clear than to copy.
    filled: Vec<Range<usize>>,
}

/// The pages of a script's image that differ from the base image, in their order.
pub struct Image {
    pages: Vec<(usize, Arc<[u8; PAGE]>)>,
    /// A bit for each of the first pages that is among `pages`.
    covered: u64,
    memory_bytes: usize,
    /// Pages that no other image has, too.
    own_pages: usize,
}

impl Image {
    /// Bytes this image occupies.
    pub fn bytes(&self) -> usize {
        self.own_pages * PAGE_BYTES
    }

    /// Bytes that are copied where a run starts from it.
    pub(crate) fn copied_bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// Whether it has a page of its own in this place.
    fn covers(&self, number: usize) -> bool {
        number < PAGES_OF_A_WORD && self.covered & (1 << number) != 0
    }

    /// The same image with other words at these addresses; nothing: it has no pages for one of them. It shares the pages that
    /// remain the same.
    pub(crate) fn with_words(&self, words: &[(u32, u32)]) -> Option<Image> {
        let mut pages = self.pages.clone();
        for &(at, word) in words {
            for (at, byte) in (at as usize..).zip(word.to_le_bytes()) {
                let place = pages.binary_search_by_key(&(at / PAGE), |(number, _)| *number).ok()?;
                Arc::make_mut(&mut pages[place].1)[at % PAGE] = byte;
            }
        }
        let is_own = |((_, new), (_, old)): &(&(usize, Arc<_>), &(usize, Arc<_>))| !Arc::ptr_eq(new, old);
        let own_pages = pages.iter().zip(&self.pages).filter(is_own).count();
        Some(Image { pages, covered: self.covered, memory_bytes: self.memory_bytes, own_pages })
    }

    /// Size that the linear memory must have.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl BaseImage {
    /// Takes the picture of `memory`, whose size is a multiple of the WebAssembly page size.
    pub fn capture(memory: &[u8]) -> BaseImage {
        let mut filled: Vec<Range<usize>> = Vec::new();
        for (number, page) in memory.chunks_exact(PAGE).enumerate() {
            if page.iter().all(|&byte| byte == 0) {
                continue;
            }
            let start = number * PAGE;
            match filled.last_mut() {
                Some(stretch) if stretch.end == start => stretch.end = start + PAGE,
                _ => filled.push(start..start + PAGE),
            }
        }
        BaseImage { bytes: memory.into(), filled }
    }

    /// Size of the memory it was taken of.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn page(&self, number: usize) -> Option<&[u8]> {
        self.bytes.get(number * PAGE..(number + 1) * PAGE)
    }

    /// What of `memory` differs from this image.
    pub fn difference(&self, memory: &[u8]) -> Image {
        let mut pages = Vec::new();
        for (number, page) in memory.chunks_exact(PAGE).enumerate() {
            let same = match self.page(number) {
                Some(base) => base == page,
                None => page.iter().all(|&byte| byte == 0),
            };
            if !same {
                let copy: [u8; PAGE] = page.try_into().expect("chunks are of this size");
                pages.push((number, Arc::new(copy)));
            }
        }
        let low = pages.iter().filter(|(number, _)| *number < PAGES_OF_A_WORD);
        let covered = low.fold(0, |bits, (number, _)| bits | 1 << number);
        Image { own_pages: pages.len(), pages, covered, memory_bytes: memory.len() }
    }

    /// Makes the pages that `written` has a bit for, and all that lies above the first `watched` bytes, what
    /// they are in this image or in `script`'s. The other pages must be equal to this image already.
    pub fn restore_written(&self, memory: &mut [u8], script: Option<&Image>, written: u64, watched: usize) {
        let mut left = written;
        while left != 0 {
            let number = left.trailing_zeros() as usize;
            left &= left - 1;
            let start = number * PAGE;
            if start >= watched {
                break;
            }
            if script.is_some_and(|image| image.covers(number)) {
                continue;
            }
            let page = &mut memory[start..start + PAGE];
            match self.filled.iter().any(|stretch| stretch.contains(&start)) {
                true => page.copy_from_slice(&self.bytes[start..start + PAGE]),
                false => page.fill(0),
            }
        }
        self.restore_from(memory, watched);
        self.lay_over(memory, script);
    }

    /// Makes every byte of `memory` what it is in this image, or in `script`'s.
    pub fn restore(&self, memory: &mut [u8], script: Option<&Image>) {
        self.restore_from(memory, 0);
        self.lay_over(memory, script);
    }

    /// Restores all bytes from `from`, the start of a page, on.
    fn restore_from(&self, memory: &mut [u8], from: usize) {
        let mut cleared = from;
        for stretch in self.filled.iter().filter(|stretch| stretch.end > from) {
            let start = stretch.start.max(from);
            memory[cleared..start].fill(0);
            memory[start..stretch.end].copy_from_slice(&self.bytes[start..stretch.end]);
            cleared = stretch.end;
        }
        memory[cleared..].fill(0);
    }

    /// Copies the pages of `script`'s image into `memory`, which is equal to this image.
    pub fn lay_over(&self, memory: &mut [u8], script: Option<&Image>) {
        for (number, page) in script.iter().flat_map(|image| &image.pages) {
            memory[number * PAGE..(number + 1) * PAGE].copy_from_slice(&**page);
        }
    }
}

/// The memory that runs of a script start from.
pub(crate) struct Overlay<'a> {
    base: &'a BaseImage,
    script: &'a Image,
}

impl<'a> Overlay<'a> {
    pub fn new(base: &'a BaseImage, script: &'a Image) -> Overlay<'a> {
        Overlay { base, script }
    }
}

impl Memory for Overlay<'_> {
    fn byte(&self, at: u32) -> Option<u8> {
        let (number, offset) = (at as usize / PAGE, at as usize % PAGE);
        if at as usize >= self.script.memory_bytes {
            return None;
        }
        match self.script.pages.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(place) => Some(self.script.pages[place].1[offset]),
            Err(_) => Some(self.base.bytes.get(at as usize).copied().unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pages: usize, marks: &[(usize, u8)]) -> Vec<u8> {
        let mut memory = vec![0; pages * PAGE];
        for &(at, byte) in marks {
            memory[at] = byte;
        }
        memory
    }

    #[test]
    fn every_byte_is_put_back() {
        let fresh = memory(4, &[(10, 1), (PAGE + 5, 2), (3 * PAGE, 3)]);
        let base = BaseImage::capture(&fresh);
        let mut used = vec![0xAA; 6 * PAGE];
        base.restore(&mut used, None);
        assert_eq!(used[..4 * PAGE], fresh);
        assert!(used[4 * PAGE..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_script_image_is_its_difference() {
        let base = BaseImage::capture(&memory(4, &[(10, 1), (PAGE, 2)]));
        let compiled = memory(6, &[(10, 1), (PAGE, 9), (5 * PAGE + 7, 4)]);
        let image = base.difference(&compiled);
        assert_eq!(image.pages.len(), 2);
        let mut used = vec![0x55; 6 * PAGE];
        base.restore(&mut used, Some(&image));
        assert_eq!(used, compiled);
    }

    #[test]
    fn an_image_with_other_words_shares_the_rest() {
        let base = BaseImage::capture(&memory(2, &[(10, 1)]));
        let image = base.difference(&memory(4, &[(10, 1), (PAGE, 9), (3 * PAGE, 4)]));
        let at = (PAGE + 4) as u32;
        let other = image.with_words(&[(at, 0x0403_0201)]).unwrap();
        let words = |image: &Image| [10, at, 3 * PAGE as u32].map(|at| Overlay::new(&base, image).word(at));
        assert_eq!(words(&image), [Some(1), Some(0), Some(4)]);
        assert_eq!(words(&other), [Some(1), Some(0x0403_0201), Some(4)]);
        assert_eq!((image.bytes() - other.bytes(), other.copied_bytes()), (PAGE_BYTES, 2 * PAGE_BYTES));
        assert!(image.with_words(&[(0, 1)]).is_none(), "it has no such page");
        assert_eq!(Overlay::new(&base, &image).byte(4 * PAGE as u32), None);
    }
}
