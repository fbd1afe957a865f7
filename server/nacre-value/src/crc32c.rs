//! CRC-32C (Castagnoli), which the protocol uses as the checksum of a document's body.

/// The polynomial 0x1EDC6F41, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][b]` advances the register over byte `b` followed by `n` zero bytes (Intel's "slicing by 8").
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = (register >> 1) ^ (POLYNOMIAL * (register & 1));
            bit += 1;
        }
        tables[0][byte] = register;
        byte += 1;
    }
    let mut slice = 1;
    while slice < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

/// Returns the CRC-32C of `bytes`, as in `$document.value_crc32c` and `${Mutation.value_crc32c}` for a body.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut register = !0u32;
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk) ^ u64::from(register);
        register = word
            .to_le_bytes()
            .iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    for byte in rest {
        register = (register >> 8) ^ TABLES[0][usize::from(register as u8 ^ byte)];
    }
    !register
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn published_vectors_hold() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
    }

    #[test]
    fn the_checksum_of_empty_input_is_zero() {
        assert_eq!(crc32c(b""), 0);
    }
}
