//! Endpoints hold at most 1,000 addresses: ready ones come first, and each subset keeps its share (K8s
//! pkg/controller/endpoint `truncateEndpoints`).

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset};

const MOST: usize = 1000;

/// Whether something was left out.
pub(super) fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let len = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| len(&subset.addresses)).sum();
    let unready: usize = subsets.iter().map(|subset| len(&subset.not_ready_addresses)).sum();
    if ready + unready <= MOST {
        return false;
    }
    let of_ready = ready > MOST;
    let (most, total) = if of_ready { (MOST, ready) } else { (MOST - ready, unready) };
    let mut room = most;
    for subset in subsets {
        let list = if of_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (len(list) * most).div_ceil(total.max(1)).min(room);
        if let Some(list) = list {
            list.truncate(share);
        }
        room -= len(list);
        list.take_if(|list| list.is_empty());
        if of_ready {
            subset.not_ready_addresses = None;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subset(ready: usize, unready: usize) -> EndpointSubset {
        let list = |count| (count > 0).then(|| vec![EndpointAddress::default(); count]);
        EndpointSubset { addresses: list(ready), not_ready_addresses: list(unready), ports: None }
    }

    fn left(counts: &[(usize, usize)]) -> (bool, Vec<(usize, usize)>) {
        let mut subsets: Vec<_> = counts.iter().map(|(ready, unready)| subset(*ready, *unready)).collect();
        let truncated = truncate(&mut subsets);
        let len = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
        (truncated, subsets.iter().map(|one| (len(&one.addresses), len(&one.not_ready_addresses))).collect())
    }

    #[test]
    fn each_subset_keeps_its_share_and_ready_ones_come_first() {
        assert_eq!(left(&[(600, 400)]), (false, vec![(600, 400)]));
        assert_eq!(left(&[(600, 401)]), (true, vec![(600, 400)]));
        assert_eq!(left(&[(1500, 5), (500, 0)]), (true, vec![(750, 0), (250, 0)]));
        assert_eq!(left(&[(0, 3), (1000, 9)]), (true, vec![(0, 0), (1000, 0)]));
        assert_eq!(left(&[(100, 900), (100, 900)]), (true, vec![(100, 400), (100, 400)]));
        let thirds = left(&[(999, 0), (999, 0), (999, 0)]);
        assert_eq!(thirds, (true, vec![(334, 0), (334, 0), (332, 0)]));
    }
}
