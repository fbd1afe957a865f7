//! Blocks: compressed records of one vBucket, with a checksum, encrypted if the repository has a key.
//!
//! ```text
//!  0  "NBLK"             12  first seqno  8     32  bytes stored       4
//!  4  vBucket     2      20  last seqno   8     36  CRC-32 of 0..36 and of the stored bytes
//!  6  codec       1      28  bytes raw    4     40  stored bytes: records, compressed, then encrypted with a tag of 16 bytes
//!  7  0           1
//!  8  records     4                             numbers are little-endian
//! ```
//!
//! *Invariants:* the seqnos of a block ascend strictly. Readers refuse lengths above [`BLOCK_RAW_BYTES_MAX`].

use crate::Record;
use crate::cipher::ObjectCipher;

/// Raw bytes at which a block is complete. A larger record is a block by itself.
pub const BLOCK_RAW_BYTES: usize = 1 << 20;
/// Maximum size of a raw block in bytes: large enough for a document of 20 MiB, its attributes and its key.
pub const BLOCK_RAW_BYTES_MAX: usize = 32 << 20;
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes that encryption adds.
const TAG_BYTES: usize = 16;
/// The zstd level. Level 3 compresses about 300 MB/s of JSON on one processor, to a quarter of the size or less.
const LEVEL: i32 = 3;
/// Maximum window of decoders: blocks are at most 2^25 bytes long.
const WINDOW_LOG_MAX: u32 = 25;
const MAGIC: [u8; 4] = *b"NBLK";
const RAW: u8 = 0;
const ZSTD: u8 = 1;

const _: () = assert!(BLOCK_RAW_BYTES_MAX > nacre_types::VALUE_BYTES_MAX + BLOCK_RAW_BYTES);

/// A decoded block: the records of a vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The vBucket.
    pub vbid: u16,
    /// Number of records.
    pub records: u32,
    /// First and last seqno.
    pub seqnos: (u64, u64),
    raw: Vec<u8>,
}

impl Block {
    /// Passes each record to `each`, in seqno order.
    ///
    /// # Errors
    /// The defect of the records; errors of `each`.
    pub fn for_each<E: From<String>>(
        &self,
        mut each: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut rest, mut last, mut count) = (&self.raw[..], None, 0);
        while !rest.is_empty() {
            let (record, left) =
                Record::decode(rest).ok_or_else(|| format!("record {count} cannot be read"))?;
            if last.is_some_and(|last| last >= record.seqno) {
                return Err(format!("seqno {} comes out of order", record.seqno).into());
            }
            if last.is_none() && record.seqno != self.seqnos.0 {
                return Err("the first seqno is not that of its header".to_owned().into());
            }
            last = Some(record.seqno);
            count += 1;
            each(record)?;
            rest = left;
        }
        let is_whole = count == self.records && last == Some(self.seqnos.1);
        if is_whole {
            Ok(())
        } else {
            Err(format!("there are {count} records, not {}", self.records).into())
        }
    }
}

/// Collects records of one vBucket until they fill a block.
pub struct BlockBuilder {
    vbid: u16,
    raw: Vec<u8>,
    records: u32,
    seqnos: (u64, u64),
}

impl BlockBuilder {
    /// Creates a builder without records.
    pub fn new(vbid: u16) -> BlockBuilder {
        BlockBuilder { vbid, raw: Vec::new(), records: 0, seqnos: (0, 0) }
    }

    /// Adds a record. Its seqno must be greater than the previous ones.
    pub fn push(&mut self, record: &Record<'_>) {
        if self.records == 0 {
            self.seqnos.0 = record.seqno;
        }
        self.seqnos.1 = record.seqno;
        self.records += 1;
        record.encode(&mut self.raw);
    }

    /// Returns true if there is no record.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns true once the block is complete.
    pub fn is_full(&self) -> bool {
        self.raw.len() >= BLOCK_RAW_BYTES
    }

    /// Returns true if a record should start the next block, so that a large value is a block by itself.
    pub fn is_better_without(&self, record: &Record<'_>) -> bool {
        self.records > 0 && self.raw.len() + record.key.len() + record.value.len() > BLOCK_RAW_BYTES
    }

    /// Appends the block to an object and starts the next one.
    pub(crate) fn finish(&mut self, object: &mut Vec<u8>, cipher: Option<&ObjectCipher>) {
        let start = object.len();
        let raw = std::mem::take(&mut self.raw);
        let compressed = zstd::bulk::compress(&raw, LEVEL).ok();
        let (codec, mut stored) = match compressed {
            Some(compressed) if compressed.len() < raw.len() => (ZSTD, compressed),
            _ => (RAW, raw.clone()),
        };
        if let Some(cipher) = cipher {
            cipher.seal(start as u64, &mut stored);
        }
        object.extend(MAGIC);
        object.extend(self.vbid.to_le_bytes());
        object.extend([codec, 0]);
        object.extend(self.records.to_le_bytes());
        object.extend(self.seqnos.0.to_le_bytes());
        object.extend(self.seqnos.1.to_le_bytes());
        object.extend((raw.len() as u32).to_le_bytes());
        object.extend((stored.len() as u32).to_le_bytes());
        let checksum = checksum(&object[start..], &stored);
        object.extend(checksum.to_le_bytes());
        object.extend(stored);
        *self = BlockBuilder::new(self.vbid);
    }
}

fn checksum(header: &[u8], stored: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(stored);
    hasher.finalize()
}

/// Decodes the block at the start of `bytes`, which is at `offset` of its object; returns it and its length.
///
/// # Errors
/// The defect of the block.
pub fn decode_block(
    bytes: &[u8],
    offset: u64,
    cipher: Option<&ObjectCipher>,
) -> Result<(Block, usize), String> {
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or("a block ends within its header")?;
    if header[..4] != MAGIC || header[7] != 0 {
        return Err("there is no block".to_owned());
    }
    let u32_at = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let (raw_bytes, stored_bytes) = (u32_at(28) as usize, u32_at(32) as usize);
    if raw_bytes > BLOCK_RAW_BYTES_MAX || stored_bytes > BLOCK_RAW_BYTES_MAX + TAG_BYTES {
        return Err(format!("a block announces {raw_bytes} bytes in {stored_bytes}"));
    }
    let stored =
        bytes.get(HEADER_BYTES..HEADER_BYTES + stored_bytes).ok_or("a block ends early")?;
    if checksum(&header[..36], stored) != u32_at(36) {
        return Err("the checksum of a block is wrong".to_owned());
    }
    let opened = match cipher {
        None => None,
        Some(cipher) => {
            let mut opened = stored.to_vec();
            cipher.open(offset, &mut opened).ok_or("a block cannot be decrypted")?;
            Some(opened)
        }
    };
    let packed = opened.as_deref().unwrap_or(stored);
    let raw = match header[6] {
        RAW => packed.to_vec(),
        ZSTD => inflate(packed, raw_bytes).ok_or("a block cannot be decompressed")?,
        codec => return Err(format!("a block has the unknown codec {codec}")),
    };
    if raw.len() != raw_bytes {
        return Err("a block is not as long as its header says".to_owned());
    }
    let vbid = u16::from_le_bytes([header[4], header[5]]);
    let block = Block { vbid, records: u32_at(8), seqnos: (u64_at(12), u64_at(20)), raw };
    Ok((block, HEADER_BYTES + stored_bytes))
}

fn inflate(packed: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut decompressor = zstd::bulk::Decompressor::new().ok()?;
    decompressor.set_parameter(zstd::zstd_safe::DParameter::WindowLogMax(WINDOW_LOG_MAX)).ok()?;
    decompressor.decompress(packed, bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordKind;
    use proptest::prelude::*;

    fn record<'a>(seqno: u64, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        let kind = RecordKind::Set;
        Record {
            kind,
            seqno,
            cas: 7,
            rev: 1,
            flags: 2,
            expiry: 0,
            datatype: 1,
            collection: 8,
            key,
            value,
        }
    }

    fn block(records: &[Record<'_>]) -> Vec<u8> {
        let (mut builder, mut object) = (BlockBuilder::new(3), Vec::new());
        records.iter().for_each(|record| builder.push(record));
        builder.finish(&mut object, None);
        object
    }

    fn seqnos(block: &Block) -> Result<Vec<u64>, String> {
        let mut seen = Vec::new();
        block.for_each(|record| {
            seen.push(record.seqno);
            Ok::<(), String>(())
        })?;
        Ok(seen)
    }

    #[test]
    fn a_block_has_its_records_back() {
        let value = vec![b'x'; 5000];
        let bytes = block(&[record(4, b"a", &value), record(9, b"b", b"{}")]);
        assert!(bytes.len() < 200, "{} bytes", bytes.len());
        let (read, length) = decode_block(&bytes, 0, None).unwrap();
        assert_eq!((length, read.vbid, read.records, read.seqnos), (bytes.len(), 3, 2, (4, 9)));
        assert_eq!(seqnos(&read).unwrap(), [4, 9]);
    }

    #[test]
    fn records_out_of_order_are_refused() {
        let bytes = block(&[record(9, b"a", b"1"), record(4, b"b", b"2")]);
        let (read, _) = decode_block(&bytes, 0, None).unwrap();
        assert_eq!(seqnos(&read).unwrap_err(), "seqno 4 comes out of order");
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let bytes = block(&[record(4, b"a", b"{\"a\":1}")]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(decode_block(&changed, 0, None).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn case_23_a_block_that_announces_more_than_there_can_be_is_refused_before_it_is_read() {
        let mut bytes = block(&[record(4, b"a", b"1")]);
        bytes[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode_block(&bytes, 0, None).unwrap_err().contains("announces"));
        // 64 MiB of zeros whose header says 100 bytes.
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], LEVEL).unwrap();
        assert_eq!(inflate(&bomb, 100), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_as_blocks(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            from in 0_usize..60,
        ) {
            let _ = decode_block(&bytes, 0, None);
            // A valid header and checksum, so that the bytes reach the decoders themselves.
            let mut shaped = block(&[record(4, b"a", b"1")]);
            shaped.truncate(HEADER_BYTES);
            shaped.extend(&bytes);
            shaped[32..36].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            shaped[6] = (from % 2) as u8;
            shaped[28..32].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            let sum = checksum(&shaped[..36], &bytes);
            shaped[36..40].copy_from_slice(&sum.to_le_bytes());
            if let Ok((read, _)) = decode_block(&shaped, 0, None) {
                let _ = seqnos(&read);
            }
        }
    }
}
