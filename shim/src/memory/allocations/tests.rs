//! Allocations by address, through their ends.

use super::*;

fn allocation(kind: Kind, context: usize) -> Allocation {
    Allocation::new(CUcontext(context), kind, Holds::Charge(Charge::for_tests()))
}

#[test]
fn a_record_is_taken_once() {
    let allocations = Allocations::new();
    assert!(allocations.insert(512, allocation(Kind::Opened, 1)).is_none());
    assert!(
        matches!(allocations.end(512, Kind::Array), Ended::Unknown),
        "an array of the same number is another thing"
    );
    assert!(
        matches!(allocations.end(512, Kind::Linear), Ended::All(_)),
        "an address is an address, however it was made"
    );
    assert!(matches!(allocations.end(512, Kind::Linear), Ended::Unknown));
}

#[test]
fn a_context_takes_its_own_along() {
    let allocations = Allocations::new();
    for address in 0..1000 {
        allocations.insert(address * 512, allocation(Kind::Linear, (address % 2) as usize));
    }
    let gone = allocations.take_all(|one| one.context == CUcontext(1));
    assert_eq!(gone.len(), 500);
    allocations.put_back(gone);
    assert_eq!(allocations.take_all(|_| true).len(), 1000);
}
