//! The libraries loaded in this process and their symbol tables, read where they lie in memory.
//!
//! Nothing here allocates, takes a lock of the shim or asks `dlsym`: it runs inside `dlsym`, before constructors and inside
//! replacements of malloc. Nothing here calls a function by a name that another library may define, not even `strlen`:
//! such a function may ask `dlsym` for the C library's, and a sanitizer's dies if it is called before its own start.
//! Formats: ELF-64 gABI ("Dynamic Section", "Symbol Table", "Hash Table"), the GNU hash section and symbol versions as
//! glibc reads them.

use core::ffi::{CStr, c_char};

/// A loaded object, while `dl_iterate_phdr` holds it.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
    dynamic: usize,
    symbols: usize,
    strings: usize,
    gnu_hash: usize,
    sysv_hash: usize,
    versions: usize,
    soname: Option<usize>,
}

/// An entry of the dynamic section.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dyn {
    tag: i64,
    value: u64,
}

/// A relocation with an addend, the only kind on the architectures that CUDA runs on.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// A word of a loaded object that the loader fills with the address of a function of some other object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Import {
    /// Address of the word.
    pub(crate) place: usize,
    /// The function's name, valid as long as the object is loaded.
    pub(crate) name: *const c_char,
}

const DT_PLTRELSZ: i64 = 2;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_RPATH: i64 = 15;
const DT_JMPREL: i64 = 23;
const DT_RUNPATH: i64 = 29;
/// The relocations that are the plain address of a symbol: R_*_GLOB_DAT, R_*_JUMP_SLOT, R_*_64 (psABI).
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u32; 3] = [6, 7, 1];
#[cfg(target_arch = "aarch64")]
const ADDRESSES: [u32; 3] = [1025, 1026, 257];

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// In a version word: not the version that an unversioned reference binds.
const VERSION_HIDDEN: u16 = 0x8000;

impl<'a> Object<'a> {
    /// An object as the loader tells it (dl_iterate_phdr(3)).
    pub(super) fn new(info: &'a libc::dl_phdr_info) -> Option<Self> {
        let base = usize::try_from(info.dlpi_addr).ok()?;
        if info.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: the loader says where the program headers of a mapped object are and how many; they are never
        // written after loading, and the object cannot leave while the loader holds its lock around this walk.
        let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let dynamic = base.wrapping_add(usize::try_from(dynamic.p_vaddr).ok()?);
        // SAFETY: the loader says that the object is mapped and where its dynamic section is.
        let mut object = unsafe { Self::at(base, dynamic) }?;
        object.headers = headers;
        Some(object)
    }

    /// An object without its program headers: [`Object::contains`] and [`Object::is_sealed`] are always false.
    ///
    /// # Safety
    /// `dynamic` is the address of the dynamic section of an object that is mapped at `base` and stays for `'a`.
    pub(crate) unsafe fn at(base: usize, dynamic: usize) -> Option<Self> {
        let mut object = Self {
            base,
            headers: &[],
            dynamic,
            symbols: 0,
            strings: 0,
            gnu_hash: 0,
            sysv_hash: 0,
            versions: 0,
            soname: None,
        };
        for (tag, value) in object.entries() {
            match tag {
                DT_HASH => object.sysv_hash = object.relocated(value),
                DT_STRTAB => object.strings = object.relocated(value),
                DT_SYMTAB => object.symbols = object.relocated(value),
                DT_GNU_HASH => object.gnu_hash = object.relocated(value),
                DT_VERSYM => object.versions = object.relocated(value),
                DT_SONAME => object.soname = Some(value),
                _ => {}
            }
        }
        (object.strings != 0 && object.symbols != 0).then_some(object)
    }

    /// Tags and values of the dynamic section.
    fn entries(&self) -> impl Iterator<Item = (i64, usize)> + use<> {
        let mut at = self.dynamic;
        core::iter::from_fn(move || {
            // SAFETY: the dynamic section of a loaded object is mapped and ends with a null tag, after which nothing is
            // read.
            let entry: Dyn = unsafe { read(at) };
            if entry.tag == 0 {
                return None;
            }
            at += size_of::<Dyn>();
            Some((entry.tag, usize::try_from(entry.value).unwrap_or(0)))
        })
    }

    /// Whether the object has a search path for the libraries that it opens by name.
    pub(crate) fn has_search_path(&self) -> bool {
        self.entries().any(|(tag, _)| tag == DT_RUNPATH)
    }

    /// Whether the object has a search path that also applies to the libraries that it loads.
    pub(crate) fn has_inherited_path(&self) -> bool {
        self.entries().any(|(tag, _)| tag == DT_RPATH)
    }

    /// Whether the word at `place` is read-only since the object was relocated.
    pub(crate) fn is_sealed(&self, place: usize) -> bool {
        let offset = place.wrapping_sub(self.base) as u64;
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_GNU_RELRO)
            .any(|header| offset.wrapping_sub(header.p_vaddr) < header.p_memsz)
    }

    /// The functions that the object imports.
    pub(crate) fn imports(&self) -> impl Iterator<Item = Import> + '_ {
        let value = |wanted| self.entries().find(|(tag, _)| *tag == wanted).map_or(0, |(_, value)| value);
        let table = |start, bytes| (self.relocated(value(start)), value(bytes) / size_of::<Relocation>());
        [table(DT_JMPREL, DT_PLTRELSZ), table(DT_RELA, DT_RELASZ)]
            .into_iter()
            .flat_map(|(start, count)| (0..count).map(move |index| start + index * size_of::<Relocation>()))
            .filter_map(|at| {
                // SAFETY: the dynamic section says where the table is and how large.
                let relocation: Relocation = unsafe { read(at) };
                self.import(&relocation)
            })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves are what is asked for")]
    fn import(&self, relocation: &Relocation) -> Option<Import> {
        let (kind, index) = (relocation.info as u32, (relocation.info >> 32) as usize);
        if index == 0 || relocation.addend != 0 || !ADDRESSES.contains(&kind) {
            return None;
        }
        // SAFETY: a relocation names only symbols of this object's symbol table.
        let symbol: libc::Elf64_Sym = unsafe { read(self.symbols + size_of::<libc::Elf64_Sym>() * index) };
        (symbol.st_shndx == 0).then(|| Import {
            place: self.base.wrapping_add(relocation.offset as usize),
            name: (self.strings + symbol.st_name as usize) as *const c_char,
        })
    }

    /// glibc relocates these pointers in place, save where the section is read-only (the vDSO): then they are offsets.
    fn relocated(&self, value: usize) -> usize {
        if value < self.base { self.base.wrapping_add(value) } else { value }
    }

    /// Whether the object's own name is `soname`.
    pub(crate) fn is_named(&self, soname: &CStr) -> bool {
        self.soname.is_some_and(|offset| self.string_is(offset, soname))
    }

    /// Base address of the object, to which its own addresses are relative.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Whether `address` lies in the object.
    pub(crate) fn contains(&self, address: usize) -> bool {
        let offset = address.wrapping_sub(self.base) as u64;
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .any(|header| offset.wrapping_sub(header.p_vaddr) < header.p_memsz)
    }

    /// First address of the object, and the first behind it.
    pub(crate) fn span(&self) -> (usize, usize) {
        let loaded = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let end = loaded.map(|header| header.p_vaddr.wrapping_add(header.p_memsz)).max();
        let bytes = end.and_then(|end| usize::try_from(end).ok()).unwrap_or(0);
        (self.base, self.base.wrapping_add(bytes))
    }

    /// The address of the function or variable that an unversioned reference to `name` finds here.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<usize> {
        let mut hidden = None;
        let found = if self.gnu_hash != 0 {
            self.by_gnu_hash(name, &mut hidden)
        } else if self.sysv_hash != 0 {
            self.by_sysv_hash(name, &mut hidden)
        } else {
            None
        };
        found.or(hidden)
    }

    fn by_gnu_hash(&self, name: &CStr, hidden: &mut Option<usize>) -> Option<usize> {
        let hash =
            name.to_bytes().iter().fold(5381_u32, |h, &b| h.wrapping_mul(33).wrapping_add(u32::from(b)));
        // SAFETY: the header of a GNU hash section is four words.
        let [buckets, first, bloom_words, bloom_shift]: [u32; 4] = unsafe { read(self.gnu_hash) };
        if buckets == 0 || bloom_words == 0 {
            return None;
        }
        let bloom = self.gnu_hash + 16;
        // SAFETY: the filter has `bloom_words` 64-bit words (a power of two) after the header.
        let filter: u64 = unsafe { read(bloom + 8 * ((hash / 64) & (bloom_words - 1)) as usize) };
        let bits = 1_u64 << (hash % 64) | 1_u64 << (hash.checked_shr(bloom_shift).unwrap_or(0) % 64);
        if filter & bits != bits {
            return None;
        }
        let bucket_table = bloom + 8 * bloom_words as usize;
        let chains = bucket_table + 4 * buckets as usize;
        // SAFETY: the section has `buckets` words after the filter.
        let mut index: u32 = unsafe { read(bucket_table + 4 * (hash % buckets) as usize) };
        if index < first {
            return None;
        }
        loop {
            // SAFETY: a chain has one word per symbol from `first` on and ends at a word with the low bit set.
            let link: u32 = unsafe { read(chains + 4 * (index - first) as usize) };
            if link | 1 == hash | 1
                && let Some(address) = self.address(index, name, hidden)
            {
                return Some(address);
            }
            if link & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }

    fn by_sysv_hash(&self, name: &CStr, hidden: &mut Option<usize>) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(0_u32, |h, &b| {
            let h = (h << 4).wrapping_add(u32::from(b));
            let top = h & 0xf000_0000;
            (h ^ (top >> 24)) & !top
        });
        // SAFETY: the section begins with the numbers of buckets and of chain words.
        let [buckets, links]: [u32; 2] = unsafe { read(self.sysv_hash) };
        if buckets == 0 {
            return None;
        }
        let bucket_table = self.sysv_hash + 8;
        let chains = bucket_table + 4 * buckets as usize;
        // SAFETY: the section has `buckets` words after its header.
        let mut index: u32 = unsafe { read(bucket_table + 4 * (hash % buckets) as usize) };
        while index != 0 && index < links {
            if let Some(address) = self.address(index, name, hidden) {
                return Some(address);
            }
            // SAFETY: there is one chain word per symbol and `index` is below their number.
            index = unsafe { read(chains + 4 * index as usize) };
        }
        None
    }

    /// The address of symbol `index` if it is defined here under `name`; one that only versioned
    /// references find goes to `hidden`.
    fn address(&self, index: u32, name: &CStr, hidden: &mut Option<usize>) -> Option<usize> {
        let at = self.symbols + size_of::<libc::Elf64_Sym>() * index as usize;
        // SAFETY: the hash table names only symbols of this object's symbol table.
        let symbol: libc::Elf64_Sym = unsafe { read(at) };
        let kind = symbol.st_info & 0xf;
        if symbol.st_shndx == 0 || symbol.st_value == 0 || !matches!(kind, STT_FUNC | STT_NOTYPE | STT_OBJECT)
        {
            return None;
        }
        if !self.string_is(symbol.st_name as usize, name) {
            return None;
        }
        let address = self.base.wrapping_add(usize::try_from(symbol.st_value).ok()?);
        if self.versions != 0 {
            // SAFETY: the version section has one 16-bit word per symbol.
            let version: u16 = unsafe { read(self.versions + 2 * index as usize) };
            if version & VERSION_HIDDEN != 0 {
                *hidden = Some(address);
                return None;
            }
        }
        Some(address)
    }

    fn string_is(&self, offset: usize, wanted: &CStr) -> bool {
        let start = (self.strings + offset) as *const c_char;
        // SAFETY: offsets into a loaded object's string table point at null-terminated strings.
        unsafe { is_string(start, wanted) }
    }
}

/// Whether the C string at `start` is `wanted`.
///
/// # Safety
/// `start` points at a null-terminated string.
pub(crate) unsafe fn is_string(start: *const c_char, wanted: &CStr) -> bool {
    // The null is compared too, so nothing is read behind the end of the string.
    wanted.to_bytes_with_nul().iter().enumerate().all(|(at, byte)| {
        // SAFETY: all bytes before `at` are equal and not null, so the string goes on.
        let place = unsafe { start.add(at) };
        // SAFETY: as above.
        let found = unsafe { place.cast::<u8>().read() };
        found == *byte
    })
}

/// Reads a value of a loaded object.
///
/// # Safety
/// `address` must lie in a mapped part of the object that holds a `T`.
unsafe fn read<T: Copy>(address: usize) -> T {
    // SAFETY: mapped by the caller's promise; an unaligned read asks nothing more.
    unsafe { (address as *const T).read_unaligned() }
}

#[cfg(test)]
mod tests;
