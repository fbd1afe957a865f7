//! CRC-64 with the polynomial of ISO 3309, as Go and Couchbase compute it.

const POLYNOMIAL: u64 = 0xd800_0000_0000_0000;

/// Returns the checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u64 {
    const TABLE: [u64; 256] = table();
    let step = |crc: u64, byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_catalogue() {
        // Source: CRC-64/GO-ISO in the Catalogue of Parametrised CRC Algorithms.
        assert_eq!(checksum(b"123456789"), 0xb909_56c7_75a4_1001);
        assert_eq!(checksum(b""), 0);
    }
}
