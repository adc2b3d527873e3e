//! What the fuzzer has found and what was mended, made smaller.

/// Names and cases (`case`).
pub(crate) const FOUND: [(&str, &str); 15] = [
    (
        "a process whose host functions never end pays for its launches beside another process",
        "cap 10
     process 3 4 | H4,2656 L14,2,772,1
     process 1 4 | L17,1,784,1",
    ),
    (
        "a kernel that always follows a short one on an idle stream is measured",
        "cap 20
     process 1 4 | L3,1,26,1 P36 L3,4,877,1 Q3,421",
    ),
    (
        "a kernel whose length changes is charged where nothing measures it",
        "cap 10
     process 1 4 | L3,32,18322,1 L3,32,101,21 Q3,127",
    ),
    (
        "work beside a capture of the same thread is measured",
        "cap 30
     process 1 4 | B2,2 L3,8,1000,8 P100 E2",
    ),
    (
        "a graph has what its thread captured, and what others launch between captures is charged",
        "lasts 2500
     cap 50
     process 1 4 | B15,1 L6,32,2334,6 E15 | L15,16,3116,1",
    ),
    (
        "threads launch on a stream while another thread captures it",
        "lasts 5000
     cap 30
     process 2 11 | D L19,16,282,15 | | B4,1 L2,32,2087,8 E4 | L4,32,282,91",
    ),
    (
        "a kernel that is long now and then is measured, though nothing waits for it",
        SELDOM_LONG_UNSEEN,
    ),
    (
        "a kernel that is long now and then is measured, though the context is waited for",
        SELDOM_LONG_WAITED_FOR,
    ),
    (
        "bursts of short kernels are seen beside a neighbour",
        "cap 30
     neighbour 60
     process 1 4 | L3,6,52,7 P1035",
    ),
    (
        "kernels that were never measured go one after the other beside a long one",
        FIRST_LAUNCHES,
    ),
    (
        "contexts of one process count one by one beside a neighbour",
        "lasts 6000
     cap 20
     neighbour 70
     process 4 4 | L15,4,2615,1 L7,32,7,17 L3,16,186,11 D",
    ),
    (
        "a kernel that is shorter than a slice is not learnt as a part of it",
        "lasts 6000
     cap 30
     neighbour 70
     process 2 4 | L3,8,13,75 P509 L7,4,9,2 S7
     at 1000 kill 0
     at 1700 start 0",
    ),
    (
        "a neighbour keeps what it earns while many contexts have their slices",
        "lasts 6200
     cap 30
     neighbour 70
     process 3 4 | B10,1 L10,1,952,33 L3,2,952,4 E10 X1 L11,16,952,14 L7,32,106,5 L6,2,192,196 S6
     process 2 7 | S1 L2,16,6,100 G6,8,28,8 G10,1,146,46 L13,16,29,103 L3,1,28,3 L3,32,3650,7
     process 2 9 | L15,1,9,55 L14,4,7,14 L15,8,363,2 G10,1,3747,12 L5,2,3747,4 P739 L14,16,3456,4 Q14,355",
    ),
    (
        "a context that waits for its slice is one of those among which slices go round",
        "lasts 6000
     cap 50
     neighbour 50
     process 3 6 | X2 D L9,8,190,5 L10,8,190,4 D | L2,8,190,97 L6,8,190,2 S6 | L6,2,5,34 L7,1,188,5 D P545 L7,2,5,2 L0,16,484,11 S0 \
     | L15,16,484,2 L6,1,188,11 L14,32,151,3 S14 | P108 L3,4,11,1 L13,16,484,28 Q13,47",
    ),
    (
        "work in a context that is destroyed right after its launch is charged",
        "lasts 2000
     cap 10
     process 2 4 | C1 G7,32,1001,25",
    ),
];

/// Twenty-four kernels of 10 us with pauses, then one of 20 ms of the same function and grid.
const SELDOM_LONG_UNSEEN: &str = "cap 10
     process 1 4 | L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 \
     L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 \
     L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 \
     L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,20000,1 P21000";

/// So, each waited for.
const SELDOM_LONG_WAITED_FOR: &str = "cap 10
     process 1 4 | L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 \
     S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 \
     L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 \
     S3 L3,32,10,1 S3 L3,32,20000,1 D";

/// Ten threads with kernels of up to 48 ms.
const FIRST_LAUNCHES: &str = "lasts 3000
     cap 20
     process 1 4 | L3,4,1354,39 D L3,32,652,136 L3,1,28,1 L3,16,47660,3 L3,2,39933,4 L3,8,7798,3 S3 | P96 S3 \
     L3,16,47660,3 L3,4,1354,147 L3,2,39933,1 S3 | S1 L3,8,7798,4 L3,8,7798,6 G3,16,47660,1 L3,2,39933,1 D | P27 \
     G1,16,47660,2 P29 L3,16,47660,2 L3,2,39933,3 L2,8,7798,3 S2 | S3 D L1,4,1354,4 L3,4,1354,78 L3,8,7798,6 \
     G3,8,7798,12 L3,32,652,6 S3 | L3,4,1354,8 G1,8,7798,4 D L3,4,1354,1 L1,8,7798,8 S1 | G3,4,1354,47 G3,2,39933,1 \
     D L2,2,39933,2 L3,16,47660,4 S3 | L3,16,47660,1 S3 L3,32,652,27 L3,4,1354,8 L3,2,39933,2 D | L3,4,1354,20 \
     L3,1,28,1 L1,2,39933,1 L3,4,1354,44 L1,32,652,1 S1 | L3,32,652,33 L3,4,1354,24";
