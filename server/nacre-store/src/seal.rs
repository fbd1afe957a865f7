//! Encryption of files: AES-256-GCM with a key for each file, and chunks that can be read one by one.
//!
//! ```text
//! chunk      chunk bytes u32 | nonce 12 | encrypted content | tag 16
//! ```
//!
//! A chunk is bound to its file by the key, and to its place by authenticated data: the offset in the file, and a number that the
//! kind of file defines. A chunk that was moved or exchanged does not open.
//!
//! *Invariant:* no nonce is used twice with a key. The nonces of a write are 12 random bytes, combined with the offsets of its
//! chunks: each offset of a write occurs once, and another write at the same offset, after a crash or in a copy of the files, has
//! other random bytes.

use crate::codec::u32_at;
use crate::key::KEY_BYTES;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = NONCE_LEN;
/// Bytes of a tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of a chunk before its content.
pub(crate) const CHUNK_FRONT_BYTES: usize = 4 + NONCE_BYTES;
/// Bytes that a chunk has beside its content.
pub(crate) const CHUNK_BYTES: usize = CHUNK_FRONT_BYTES + TAG_BYTES;

/// Returns random bytes of the operating system.
///
/// # Errors
/// Fails when the operating system gives no random bytes.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the operating system gives no random bytes"))?;
    Ok(bytes)
}

/// The nonces of one write.
#[derive(Clone, Copy)]
pub(crate) struct Nonces([u8; NONCE_BYTES]);

impl Nonces {
    /// Returns nonces that no other write has.
    ///
    /// # Errors
    /// Fails when the operating system gives no random bytes.
    pub fn random() -> io::Result<Nonces> {
        Ok(Nonces(random()?))
    }

    /// Returns the nonces of a write that was read back.
    pub fn of(first: [u8; NONCE_BYTES]) -> Nonces {
        Nonces(first)
    }

    /// Returns the nonce for an offset.
    pub fn at(self, offset: u32) -> [u8; NONCE_BYTES] {
        let mut nonce = self.0;
        for (byte, of_offset) in nonce[NONCE_BYTES - 4..].iter_mut().zip(offset.to_be_bytes()) {
            *byte ^= of_offset;
        }
        nonce
    }
}

/// The cipher of one file.
pub(crate) struct FileCipher(LessSafeKey);

impl FileCipher {
    /// Creates a cipher.
    pub fn new(key: &[u8; KEY_BYTES]) -> FileCipher {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key is 32 bytes long");
        FileCipher(LessSafeKey::new(key))
    }

    /// Encrypts in place and returns the tag. `place` is authenticated, not stored. A nonce must be used once.
    pub fn seal(
        &self,
        nonce: [u8; NONCE_BYTES],
        place: &[u8],
        content: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(place), content);
        let tag = sealed.expect("a file is far shorter than AES-GCM can encrypt");
        let mut bytes = [0; TAG_BYTES];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Decrypts content and tag in place, and returns the content; `None` if it was not encrypted with this key, nonce and place.
    pub fn open<'a>(
        &self,
        nonce: [u8; NONCE_BYTES],
        place: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(place), sealed).ok()
    }

    /// Makes a chunk of `bytes[start..]`, whose first [`CHUNK_FRONT_BYTES`] are free, by encrypting the rest and adding a tag. The
    /// chunk is to be written at `offset` of the file.
    pub fn seal_chunk(
        &self,
        bytes: &mut Vec<u8>,
        start: usize,
        nonces: Nonces,
        offset: u32,
        number: u64,
    ) {
        let nonce = nonces.at(offset);
        let (front, content) = bytes[start..].split_at_mut(CHUNK_FRONT_BYTES);
        front[..4].copy_from_slice(&((content.len() + CHUNK_BYTES) as u32).to_be_bytes());
        front[4..].copy_from_slice(&nonce);
        let tag = self.seal(nonce, &place(offset, number), content);
        bytes.extend(tag);
    }

    /// Decrypts a chunk in place and returns its content; `None` if `chunk` is not exactly one that was written at `offset`.
    pub fn open_chunk<'a>(
        &self,
        chunk: &'a mut [u8],
        offset: u32,
        number: u64,
    ) -> Option<&'a mut [u8]> {
        if chunk_bytes(chunk)? != chunk.len() {
            return None;
        }
        let (front, sealed) = chunk.split_at_mut_checked(CHUNK_FRONT_BYTES)?;
        let nonce: [u8; NONCE_BYTES] = front[4..].try_into().ok()?;
        self.open(nonce, &place(offset, number), sealed)
    }
}

/// Returns the length that the chunk at the start of `bytes` records.
pub(crate) fn chunk_bytes(bytes: &[u8]) -> Option<usize> {
    u32_at(bytes, 0).map(|length| length as usize)
}

fn place(offset: u32, number: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&offset.to_be_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(cipher: &FileCipher, offset: u32, number: u64) -> Vec<u8> {
        let mut bytes = vec![9];
        bytes.extend([0; CHUNK_FRONT_BYTES]);
        bytes.extend(b"secret");
        cipher.seal_chunk(&mut bytes, 1, Nonces::random().unwrap(), offset, number);
        bytes.split_off(1)
    }

    #[test]
    fn a_chunk_opens_only_where_it_was_written() {
        let cipher = FileCipher::new(&[1; KEY_BYTES]);
        let sealed = chunk(&cipher, 40, 3);
        assert_eq!(sealed.len(), b"secret".len() + CHUNK_BYTES);
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        let open = |cipher: &FileCipher, offset, number| {
            let mut bytes = sealed.clone();
            cipher.open_chunk(&mut bytes, offset, number).map(|content| content.to_vec())
        };
        assert_eq!(open(&cipher, 40, 3).as_deref(), Some(&b"secret"[..]));
        assert_eq!(open(&cipher, 41, 3), None);
        assert_eq!(open(&cipher, 40, 4), None);
        assert_eq!(open(&FileCipher::new(&[2; KEY_BYTES]), 40, 3), None);
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_of_a_chunk_is_detected() {
        let cipher = FileCipher::new(&[1; KEY_BYTES]);
        let sealed = chunk(&cipher, 40, 3);
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(cipher.open_chunk(&mut damaged, 40, 3).is_none(), "bit {bit}");
        }
        for bytes in 0..sealed.len() {
            let mut cut = sealed[..bytes].to_vec();
            assert!(cipher.open_chunk(&mut cut, 40, 3).is_none(), "{bytes} bytes");
        }
    }

    #[test]
    fn the_same_content_is_never_encrypted_to_the_same_bytes() {
        let cipher = FileCipher::new(&[1; KEY_BYTES]);
        assert_ne!(chunk(&cipher, 40, 3), chunk(&cipher, 40, 3));
        let nonces = Nonces::random().unwrap();
        let all: std::collections::BTreeSet<_> = (0..1000).map(|at| nonces.at(at)).collect();
        assert_eq!(all.len(), 1000);
    }
}
