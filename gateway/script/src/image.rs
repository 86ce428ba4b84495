//! Memory images: what a sandbox is put back to.
//!
//! The base image is the guest's memory after its libraries were opened. A known script has an image of its
//! own, with the script compiled, kept as the pages that differ from the base.
//!
//! Rewinding writes every byte of the memory, not only what an honest guest could have touched: the guest is
//! hostile, and finding dirty pages by the kernel's help (soft-dirty bits, write protection) costs more than
//! writing some tens of them.

use std::ops::Range;

/// Granularity of comparing and storing.
const PAGE: usize = 4096;

/// The memory of a guest that has just been initialised.
pub(crate) struct BaseImage {
    bytes: Box<[u8]>,
    /// Stretches of `bytes` that are not all zero, in whole pages. The rest is cheaper to clear than to copy.
    filled: Vec<Range<usize>>,
}

/// The pages of a script's image that differ from the base image.
pub struct Image {
    pages: Vec<(usize, Box<[u8; PAGE]>)>,
    memory_bytes: usize,
}

impl Image {
    /// Bytes this image occupies.
    pub fn bytes(&self) -> usize {
        self.pages.len() * (PAGE + size_of::<(usize, Box<[u8; PAGE]>)>())
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
        Image { pages, memory_bytes: memory.len() }
    }

    /// Makes every byte of `memory` what it is in this image, or in `script`'s.
    pub fn restore(&self, memory: &mut [u8], script: Option<&Image>) {
        let mut cleared = 0;
        for stretch in &self.filled {
            memory[cleared..stretch.start].fill(0);
            memory[stretch.clone()].copy_from_slice(&self.bytes[stretch.clone()]);
            cleared = stretch.end;
        }
        memory[cleared..].fill(0);
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
