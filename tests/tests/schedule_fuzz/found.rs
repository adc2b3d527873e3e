//! What the fuzzer has found and what was mended, made smaller.

/// Names and cases (`case`).
pub(crate) const FOUND: [(&str, &str); 8] = [
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
