//! From v1 cpu shares to a v2 weight. Pure.

/// `cpu.weight` for `shares` (2 to 262144), so that 1024 shares give the default weight 100 and both ends meet:
/// 10^((l^2 + 125 l) / 612 - 7/34) with l = log2(shares), rounded up, as runc 1.3.2 and Kubernetes 1.35 do it.
/// Older OCI runtimes map linearly, which starves small requests: so it is computed here.
pub fn weight_of_shares(shares: u64) -> u64 {
    match shares {
        0 => 0,
        1..=2 => 1,
        262_144.. => 10_000,
        _ => {
            // At most 18 bits: exact in a double; the result lies between 1 and 10000.
            let log = f64::from(u32::try_from(shares).unwrap_or(u32::MAX)).log2();
            let weight = 10f64.powf((log * log + 125.0 * log) / 612.0 - 7.0 / 34.0).ceil();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let weight = weight as u64;
            weight.clamp(1, 10_000)
        }
    }
}

/// The fewest shares that give `weight`: the way back, for what is read from the kernel.
pub fn shares_of_weight(weight: u64) -> u64 {
    let (mut low, mut high) = (2, 262_144);
    while low < high {
        let middle = (low + high) / 2;
        if weight_of_shares(middle) < weight { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_pairs() {
        for (shares, weight) in [(2, 1), (1024, 100), (2000, 170), (262_144, 10_000), (1 << 20, 10_000)] {
            assert_eq!(weight_of_shares(shares), weight, "{shares}");
        }
    }

    #[test]
    fn weight_converts_both_ways() {
        for weight in [1, 2, 57, 100, 999, 10_000] {
            assert_eq!(weight_of_shares(shares_of_weight(weight)), weight);
        }
    }

    #[test]
    fn more_shares_never_weigh_less() {
        let weights: Vec<u64> = (2..4096).map(weight_of_shares).collect();
        assert!(weights.is_sorted());
    }
}
