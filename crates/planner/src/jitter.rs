//! Spreading things out without randomness: the same names give the same number on every machine and after every
//! restart, and different names give numbers that look unrelated.

/// A number below `range` that depends on the names alone; 0 if the range is empty.
pub fn spread(names: &[&str], range: u64) -> u64 {
    if range == 0 {
        return 0;
    }
    mixed(names) % range
}

/// FNV-1a over the names, with a separator between them, and a final mix so that the low bits are as good as the high
/// ones: node names often differ in their last digit only.
fn mixed(names: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for name in names {
        for byte in name.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_names_give_the_same_number() {
        assert_eq!(spread(&["node-1", "job"], 86_400), spread(&["node-1", "job"], 86_400));
        assert_eq!(spread(&["x"], 0), 0);
    }

    #[test]
    fn where_one_name_ends_matters() {
        assert_ne!(spread(&["ab", "c"], u64::MAX), spread(&["a", "bc"], u64::MAX));
    }

    #[test]
    fn a_fleet_of_numbered_nodes_fills_the_day_evenly() {
        let mut hours = [0u32; 24];
        for number in 0..24_000u32 {
            let second = spread(&["job-uid", &format!("node-{number:05}")], 86_400);
            hours[usize::try_from(second / 3_600).unwrap()] += 1;
        }
        assert!(hours.iter().all(|nodes| (850..1_150).contains(nodes)), "{hours:?}");
    }
}
