//! The hash from which YCSB derives keys.

/// Returns the FNV-1a hash of the eight bytes of a number, in little-endian order.
pub fn hash(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Returns the absolute value of the hash as a signed number, as YCSB does.
pub fn unsigned_hash(number: u64) -> u64 {
    hash(number).cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the workloads of the dissertation publish for their clients.
    #[test]
    fn hashes_match_ycsb() {
        let expected = [
            8_517_097_267_634_966_620,
            1_820_151_046_732_198_393,
            4_052_466_453_699_787_802,
            3_232_700_585_171_816_769,
            1_000_385_178_204_227_360,
        ];
        assert_eq!([1, 2, 3, 4, 5].map(unsigned_hash), expected);
    }
}
