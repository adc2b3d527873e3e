//! What the fuzzer has found and what was mended, made smaller.

/// Names and cases (`case`).
pub(crate) const FOUND: [(&str, &str); 3] = [
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
];
