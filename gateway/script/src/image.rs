//! Memory images: what a sandbox is put back to.
//!
//! The base image is the guest's memory after its libraries were opened. A known script has an image of its
//! own, with the script compiled, kept as the pages that differ from the base.
//!
//! Rewinding puts back every byte that differs, not only what an honest guest could have touched: the guest is
//! hostile. Which pages cannot differ is known from their write protection, see [`crate::guard`].

use std::ops::Range;

use crate::guard::PAGE;

const PAGES_OF_A_WORD: usize = u64::BITS as usize;

/// The memory of a guest that has just been initialised.
pub(crate) struct BaseImage {
    bytes: Box<[u8]>,
    /// Stretches of `bytes` that are not all zero, in whole pages. The rest is cheaper to clear than to copy.
    filled: Vec<Range<usize>>,
}

/// The pages of a script's image that differ from the base image.
pub struct Image {
    pages: Vec<(usize, Box<[u8; PAGE]>)>,
    /// A bit for each of the first pages that is among `pages`.
    covered: u64,
    memory_bytes: usize,
}

impl Image {
    /// Bytes this image occupies.
    pub fn bytes(&self) -> usize {
        self.pages.len() * (PAGE + size_of::<(usize, Box<[u8; PAGE]>)>())
    }

    /// Whether it has a page of its own in this place.
    fn covers(&self, number: usize) -> bool {
        number < PAGES_OF_A_WORD && self.covered & (1 << number) != 0
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
                let copy: Box<[u8; PAGE]> = page.to_vec().try_into().expect("chunks are of this size");
                pages.push((number, copy));
            }
        }
        let low = pages.iter().filter(|(number, _)| *number < PAGES_OF_A_WORD);
        let covered = low.fold(0, |bits, (number, _)| bits | 1 << number);
        Image { pages, covered, memory_bytes: memory.len() }
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
}
