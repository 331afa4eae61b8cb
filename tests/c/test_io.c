/* test_io.c: files written and read again, real samples, hostile files, refused memory, and disks
 * that fill up. */
#include "folder.h"
#include "io/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLES "../shared/data/formats/"
#define MNIST "../shared/data/datasets/mnist/"

static neap_tensor count_up(neap_dtype dtype, neap_shape shape) {
  neap_tensor t = {0};
  CHECK_OK(neap_tensor_new(&t, dtype, &shape, &error));
  for (int64_t i = 0; i < neap_tensor_elems(&t); i++)
    neap_element_set_i64(dtype, neap_tensor_data(&t), i, i % 100);
  return t;
}

static bool same_tensor(const neap_tensor *a, const neap_tensor *b) {
  if (a == NULL || b == NULL || a->dtype != b->dtype || !neap_shape_equal(&a->shape, &b->shape))
    return false;
  neap_tensor x, y;
  neap_type type = neap_tensor_type(a);
  CHECK_OK(neap_tensor_clone(a, NEAP_DTYPE_NONE, &x, &error));
  CHECK_OK(neap_tensor_clone(b, NEAP_DTYPE_NONE, &y, &error));
  bool same = memcmp(neap_tensor_data(&x), neap_tensor_data(&y), neap_type_bytes(&type)) == 0;
  neap_tensor_fini(&x), neap_tensor_fini(&y);
  return same;
}

static neap_io_bytes read_whole(const char *path) {
  neap_io_bytes bytes = {0};
  CHECK_OK(neap_io_read_text(path, &bytes, &error));
  return bytes;
}

/* One tensor of every dtype and of every kind of shape, a strided one last. */
enum { N_ITEMS = 12 };
static void make_items(neap_io_item item[N_ITEMS]) {
  static char *names[] = {"a.weight", "b", "c/d", "e f",    "\"quoted\\\"", "\xc3\xa9t\xc3\xa9",
                          "g",        "h", "i",   "scalar", "empty",        "strided"};
  static const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_BF16,
                                      NEAP_DTYPE_F16, NEAP_DTYPE_I16, NEAP_DTYPE_U16,
                                      NEAP_DTYPE_I32, NEAP_DTYPE_I64, NEAP_DTYPE_BOOL,
                                      NEAP_DTYPE_F32, NEAP_DTYPE_U8,  NEAP_DTYPE_I32};
  for (int i = 0; i < N_ITEMS; i++) {
    neap_shape shape = i == 9    ? (neap_shape){0}
                       : i == 10 ? NEAP_SHAPE(3, 0, 2)
                                 : NEAP_SHAPE(i + 1, 3, 1);
    item[i] = (neap_io_item){names[i], count_up(dtypes[i], shape)};
  }
  neap_tensor view;
  CHECK_OK(neap_tensor_permute(&item[11].tensor, (int[]){1, 2, 0}, &view, &error));
  neap_tensor_fini(&item[11].tensor);
  item[11].tensor = view;
}

static void free_items(neap_io_item item[N_ITEMS]) {
  for (int i = 0; i < N_ITEMS; i++) neap_tensor_fini(&item[i].tensor);
}

/* ---- round trips ----------------------------------------------------------------------------- */

static void check_round_trip(const char *path, int n, neap_io_item *item, int n_meta,
                             neap_io_pair *meta) {
  CHECK_OK(neap_io_save(path, n, item, n_meta, meta, &error));
  for (neap_io_map map = NEAP_IO_COPY; map <= NEAP_IO_MAP_WRITE; map++) {
    neap_io_list list;
    CHECK_OK(neap_io_load(path, map, &list, &error));
    CHECK_EQ(list.n_item, n);
    for (int i = 0; i < n; i++) {
      neap_tensor *got = neap_io_list_find(&list, item[i].name);
      CHECK(same_tensor(got, &item[i].tensor));
      if (got == NULL) continue;
      CHECK_EQ(neap_storage_is_read_only(got->storage), map == NEAP_IO_MAP_READ);
      CHECK_EQ((uintptr_t)neap_tensor_data(got) % neap_dtype_bytes(got->dtype), 0);
    }
    for (int i = 0; i < n_meta; i++) {
      const char *value = neap_io_list_meta(&list, meta[i].key);
      CHECK(value != NULL && strcmp(value, meta[i].value) == 0);
    }
    CHECK_EQ(list.n_meta, n_meta);
    neap_io_list_fini(&list);
  }
}

TEST(what_is_saved_is_loaded) {
  neap_io_item item[N_ITEMS];
  neap_io_pair meta[] = {{"seed", "42"}, {"net", "name: \"f\"\n\top { }\n"}, {"", "empty key"}};
  make_items(item);
  int64_t held = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  check_round_trip(in_folder("all.npz"), N_ITEMS, item, 0, NULL);
  check_round_trip(in_folder("all.safetensors"), N_ITEMS, item, 3, meta);
  check_round_trip(in_folder("none.npz"), 0, NULL, 0, NULL);
  check_round_trip(in_folder("none.safetensors"), 0, NULL, 0, NULL);
  for (int i = 0; i < N_ITEMS; i++) {
    neap_io_item one = {"", item[i].tensor};
    check_round_trip(in_folder("one.npy"), 1, &one, 0, NULL);
  }
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], held);
  free_items(item);
}

TEST(the_same_content_gives_the_same_bytes) {
  static const char *const names[] = {"x.npz", "x.safetensors"};
  neap_io_item item[N_ITEMS];
  make_items(item);
  for (int f = 0; f < 2; f++) {
    CHECK_OK(neap_io_save(in_folder(names[f]), N_ITEMS, item, 0, NULL, &error));
    neap_io_bytes first = read_whole(in_folder(names[f]));
    CHECK_OK(neap_io_save(in_folder(names[f]), N_ITEMS, item, 0, NULL, &error));
    neap_io_bytes second = read_whole(in_folder(names[f]));
    CHECK(first.n == second.n && memcmp(first.data, second.data, first.n) == 0);
    neap_free(first.data), neap_free(second.data);
  }
  free_items(item);
}

TEST(mapped_files_are_views_that_never_write_back) {
  static const char *const names[] = {"m.npy", "m.npz", "m.safetensors"};
  neap_tensor t = count_up(NEAP_DTYPE_F64, NEAP_SHAPE(100, 100)),
              zero = count_up(NEAP_DTYPE_F64, NEAP_SHAPE(1));
  for (int f = 0; f < 3; f++) {
    const char *path = in_folder(names[f]);
    neap_io_item item = {"t", t};
    CHECK_OK(neap_io_save(path, 1, &item, 0, NULL, &error));
    neap_io_list r, c;
    int64_t held = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
    CHECK_OK(neap_io_load(path, NEAP_IO_MAP_READ, &r, &error));
    CHECK_OK(neap_io_load(path, NEAP_IO_MAP_WRITE, &c, &error));
    CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], held); /* no copy was made */
    CHECK_EQ((uintptr_t)neap_tensor_data(&r.item[0].tensor) % NEAP_ALIGN, 0);
    CHECK_FAILS(neap_tensor_copy(&r.item[0].tensor, &zero, &error), NEAP_ARGUMENT, "read-only");
    CHECK_OK(neap_tensor_copy(&c.item[0].tensor, &zero, &error));
    CHECK(same_tensor(&r.item[0].tensor, &t) && !same_tensor(&c.item[0].tensor, &t));
    /* the file may be replaced while it is mapped */
    CHECK_OK(neap_io_save(path, 1, &c.item[0], 0, NULL, &error));
    CHECK(same_tensor(&r.item[0].tensor, &t));
    neap_io_list_fini(&r), neap_io_list_fini(&c);
  }
  neap_tensor_fini(&t), neap_tensor_fini(&zero);
}

/* ---- npy ------------------------------------------------------------------------------------- */

/* A .npy file of this version, dictionary and data. */
static const char *put_npy(int version, const char *dictionary, const void *data, size_t n) {
  char bytes[1024];
  size_t n_text = strlen(dictionary), prefix = version == 1 ? 10 : 12;
  memcpy(bytes, "\x93NUMPY", 6);
  bytes[6] = (char)version, bytes[7] = 0;
  bytes[8] = (char)(n_text & 0xff), bytes[9] = (char)(n_text >> 8), bytes[10] = bytes[11] = 0;
  memcpy(bytes + prefix, dictionary, n_text);
  memcpy(bytes + prefix + n_text, data, n);
  return put_file("hand.npy", bytes, prefix + n_text + n);
}

static neap_tensor load_one(const char *path) {
  neap_io_list list;
  neap_tensor t = {0};
  CHECK_OK(neap_io_load(path, NEAP_IO_COPY, &list, &error));
  CHECK_EQ(list.n_item, 1);
  if (list.n_item == 1) t = neap_tensor_retain(&list.item[0].tensor);
  neap_io_list_fini(&list);
  return t;
}

static neap_status try_load(const char *path, neap_error *error) {
  neap_io_list list;
  neap_status status = neap_io_load(path, NEAP_IO_COPY, &list, error);
  neap_io_list_fini(&list);
  return status;
}

/* The numbers 0, 1, .. of a 2 x 3 tensor, at row-major positions given by `order`. */
static void check_six(const char *path, neap_dtype dtype, const int order[6]) {
  neap_tensor t = load_one(path);
  neap_shape expected = NEAP_SHAPE(2, 3);
  CHECK_EQ(t.dtype, dtype);
  CHECK(neap_shape_equal(&t.shape, &expected) && neap_tensor_is_dense(&t));
  for (int i = 0; i < 6 && t.storage != NULL; i++)
    CHECK_EQ(neap_element_get_i64(t.dtype, neap_tensor_data(&t), i), order[i]);
  neap_tensor_fini(&t);
}

TEST(npy_versions_orders_and_number_formats) {
  static const int c_order[] = {0, 1, 2, 3, 4, 5}, fortran[] = {0, 2, 4, 1, 3, 5};
  static const float f4[] = {0, 1, 2, 3, 4, 5};
  static const uint16_t u2[] = {0, 1, 2, 3, 4, 5};
  static const uint64_t u8[] = {0, 1, 2, 3, 4, 5};
  static const unsigned char be4[] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2,
                                      0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5};
  for (int version = 1; version <= 3; version++)
    check_six(put_npy(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", f4,
                      sizeof f4),
              NEAP_DTYPE_F32, c_order);
  check_six(put_npy(1, "{\"shape\":(2,3),'fortran_order':True,'descr':'<f4'}   \n", f4, sizeof f4),
            NEAP_DTYPE_F32, fortran);
  check_six(
    put_npy(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2L, 3L,)}", u2, sizeof u2),
    NEAP_DTYPE_U16, c_order);
  check_six(put_npy(1, "{'descr': '<u8', 'fortran_order': True, 'shape': (2, 3)}", u8, sizeof u8),
            NEAP_DTYPE_I64, fortran);
  check_six(
    put_npy(2, "{'descr': '>i4', 'fortran_order': False, 'shape': (2, 3)}", be4, sizeof be4),
    NEAP_DTYPE_I32, c_order);
  check_six(
    put_npy(2, "{'descr': '>u4', 'fortran_order': False, 'shape': (2, 3)}", be4, sizeof be4),
    NEAP_DTYPE_I64, c_order);
  static const int16_t negative[] = {-3, 300};
  neap_tensor t = load_one(put_npy(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}",
                                   negative, sizeof negative));
  CHECK_EQ(neap_element_get_i64(t.dtype, neap_tensor_data(&t), 0), -3);
  CHECK_EQ(neap_element_get_i64(t.dtype, neap_tensor_data(&t), 1), 300);
  neap_tensor_fini(&t);
}

TEST(mapped_fortran_order_is_a_view) {
  char data[64 + 24]; /* header and data aligned by hand: 10 + 54 bytes, then six floats */
  static const float f4[] = {0, 1, 2, 3, 4, 5};
  memcpy(data, f4, sizeof f4);
  const char *path =
    put_npy(1, "{'descr':'<f4','fortran_order':True,'shape':(2,3)}   \n", data, sizeof f4);
  neap_io_list list;
  CHECK_OK(neap_io_load(path, NEAP_IO_MAP_READ, &list, &error));
  CHECK(list.item[0].tensor.stride[0] == 1 && list.item[0].tensor.stride[1] == 2);
  neap_io_list_fini(&list);
}

TEST(npy_that_is_wrong_is_refused) {
  static const struct {
    const char *dictionary, *words;
  } wrong[] = {
    {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "Python objects"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "structured"},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "'<c8'"},
    {"{'descr': '<f4x', 'fortran_order': False, 'shape': (1,)}", "'<f4x'"},
    {"{'descr': '', 'fortran_order': False, 'shape': (1,)}", "descr ''"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "truncated"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
     "more than the 128.0 TiB"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}",
     "more than the 128.0 TiB"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,)}", "truncated"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "'shape'"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "'shape'"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "'shape'"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "8 dimensions"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "'fortran_order'"},
    {"{'descr': '<f4', 'shape': (1,)}", "lacks"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "twice"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", "unknown key"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1", "follows"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "does not end"},
    {"{'descr': '<f4", "'descr' is not a text"},
    {"", "not a dictionary"},
  };
  float data[2] = {1, 2};
  for (int i = 0; i < NEAP_COUNT(wrong); i++) {
    const char *path = put_npy(1 + i % 3, wrong[i].dictionary, data, sizeof data);
    CHECK_FAILS(try_load(path, &error), NEAP_DATA, wrong[i].words);
    CHECK_FAILS(try_load(path, &error), NEAP_DATA, path);
  }
  uint64_t large = UINT64_MAX;
  CHECK_FAILS(
    try_load(put_npy(1, "{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", &large, 8),
             &error),
    NEAP_DATA, "u64");
  CHECK_FAILS(try_load(put_npy(4, "{}", data, 8), &error), NEAP_DATA, "version 4.0");
  CHECK_FAILS(try_load(put_file("text.npy", "hello, world", 12), &error), NEAP_DATA,
              "not a .npy file");
}

/* ---- npz ------------------------------------------------------------------------------------- */

/* Written by numpy.savez_compressed: a = arange(6) '<i4' (2,3); b the same as '>f8' in Fortran
 * order. Both deflated. */
static const char deflated_hex[] =
  "504b03042d00000008000000210050b44d84ffffffffffffffff05001400612e6e707901001000980000000000000055"
  "000000000000009bec17ea1b10c9"
  "c850"
  "c650ad9e925a9c5ca46ea5a06e9369a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a"
  "463a0ac69a3a0ab50a64032e0620"
  "6004"
  "622620660662162066056200504b03042d0000000800000021005f045047ffffffffffffffff05001400622e6e707901"
  "001000b000000000000000560000"
  "0000"
  "0000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9766a1aea3a09e965f54529498179f5f94920a120f292a"
  "4d050a17672416a402b91a463a0a"
  "c69a"
  "3a0ab50ae4032e062870e080d0f61fa07c01280d931781d000504b01022d032d00000008000000210050b44d84550000"
  "0098000000050000000000000000"
  "0000"
  "00800100000000612e6e7079504b01022d032d0000000800000021005f04504756000000b00000000500000000000000"
  "0000000080018c000000622e6e70"
  "7950"
  "4b0506000000000200020066000000190100000000";

static size_t unhex(const char *hex, unsigned char *out) {
  size_t n = strlen(hex) / 2;
  for (size_t i = 0; i < n; i++) sscanf(hex + 2 * i, "%2hhx", &out[i]);
  return n;
}

TEST(deflated_npz_members_are_unpacked_and_checked) {
  unsigned char bytes[512];
  size_t n = unhex(deflated_hex, bytes);
  for (neap_io_map map = NEAP_IO_COPY; map <= NEAP_IO_MAP_WRITE; map++) {
    neap_io_list list;
    CHECK_OK(neap_io_load(put_file("deflated.npz", bytes, n), map, &list, &error));
    neap_tensor *a = neap_io_list_find(&list, "a"), *b = neap_io_list_find(&list, "b"), widened;
    CHECK(a != NULL && b != NULL && a->dtype == NEAP_DTYPE_I32 && b->dtype == NEAP_DTYPE_F64);
    if (a != NULL && b != NULL) {
      CHECK_OK(neap_tensor_clone(a, NEAP_DTYPE_F64, &widened, &error));
      CHECK(same_tensor(&widened, b));
      neap_tensor_fini(&widened);
    }
    neap_io_list_fini(&list);
  }
  bytes[60] ^= 4; /* in a's compressed data */
  CHECK_FAILS(try_load(put_file("deflated.npz", bytes, n), &error), NEAP_DATA, "member \"a.npy\"");
  bytes[60] ^= 4;

  /* the directory claims another size for a: one byte less, one more, and a gigabyte */
  size_t size = n - 22 - 0x66 + 24;
  static const uint32_t sizes[] = {0x97, 0x99, 1u << 30};
  for (int i = 0; i < 3; i++) {
    memcpy(bytes + size, &sizes[i], 4);
    CHECK_FAILS(try_load(put_file("deflated.npz", bytes, n), &error), NEAP_DATA,
                i < 2 ? "compressed data is damaged" : "cannot have");
  }
}

TEST(npz_that_is_wrong_is_refused) {
  neap_io_item item[2] = {{"x", count_up(NEAP_DTYPE_F32, NEAP_SHAPE(3))},
                          {"y", count_up(NEAP_DTYPE_F32, NEAP_SHAPE(3))}};
  CHECK_OK(neap_io_save(in_folder("two.npz"), 2, item, 0, NULL, &error));
  neap_io_bytes whole = read_whole(in_folder("two.npz"));
  for (size_t i = 0; i + 4 < whole.n; i++) /* both members under one name */
    if (memcmp(whole.data + i, "y.npy", 5) == 0) whole.data[i] = 'x';
  CHECK_FAILS(try_load(put_file("two.npz", whole.data, whole.n), &error), NEAP_DATA,
              "two tensors are named \"x\"");
  neap_free(whole.data);
  CHECK_FAILS(try_load(put_file("text.npz", "hello", 5), &error), NEAP_DATA, "truncated");
  CHECK_FAILS(
    try_load(put_file("text.npz", "PK\x03\x04 and then nothing that a zip file has", 41), &error),
    NEAP_DATA, "no end record");
  item[1].name = "x";
  CHECK_FAILS(neap_io_save(in_folder("twice.npz"), 2, item, 0, NULL, &error), NEAP_ARGUMENT,
              "two tensors are named \"x\"");
  CHECK_FAILS(neap_io_save(in_folder("twice.safetensors"), 2, item, 0, NULL, &error), NEAP_ARGUMENT,
              "two tensors are named \"x\"");
  CHECK(!there(in_folder("twice.npz")) && !there(in_folder("twice.safetensors")));
  neap_tensor_fini(&item[0].tensor), neap_tensor_fini(&item[1].tensor);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static const char *put_safetensors(const char *json, size_t n_data) {
  static unsigned char bytes[4096];
  uint64_t n = strlen(json);
  memset(bytes, 0, sizeof bytes);
  memcpy(bytes, &n, 8);
  memcpy(bytes + 8, json, n);
  return put_file("hand.safetensors", bytes, 8 + n + n_data);
}

TEST(safetensors_that_is_wrong_is_refused) {
#define TENSOR(dtype, shape, begin, end) \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
  static const struct {
    const char *json, *words;
    size_t n_data;
  } wrong[] = {
    {"{\"a\":" TENSOR("F32", "[2]", 0, 8) ",\"b\":" TENSOR("F32", "[1]", 4, 8) "}", "overlaps", 8},
    {"{\"a\":" TENSOR("F32", "[2]", 0, 8) ",\"b\":" TENSOR("F32", "[1]", 12, 16) "}", "hole", 16},
    {"{\"a\":" TENSOR("F32", "[2]", 4, 12) "}", "hole", 12},
    {"{\"a\":" TENSOR("F32", "[2]", 0, 8) "}", "describes 8 bytes", 12},
    {"{\"a\":" TENSOR("F32", "[2]", 0, 8) "}", "describes 8 bytes", 4},
    {"{\"a\":" TENSOR("F32", "[2]", 0, 12) "}", "not its size", 12},
    {"{\"a\":" TENSOR("F32", "[2]", 8, 0) "}", "data_offsets", 8},
    {"{\"a\":" TENSOR("F32", "[4611686018427387904,8]", 0, 0) "}", "not its size", 0},
    {"{\"a\":" TENSOR("F32", "[4611686018427387904]", 0, 0) "}", "not its size", 0},
    {"{\"a\":" TENSOR("F32", "[0,4611686018427387904,8]", 0, 0) "}", "more than the 128.0 TiB", 0},
    {"{\"a\":" TENSOR("F32", "[9223372036854775808]", 0, 0) "}", "JSON", 0},
    {"{\"a\":" TENSOR("F32", "[-1]", 0, 0) "}", "shape", 0},
    {"{\"a\":" TENSOR("F32", "[1.0]", 0, 4) "}", "shape", 4},
    {"{\"a\":" TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", "shape", 4},
    {"{\"a\":" TENSOR("F8_E4M3", "[1]", 0, 1) "}", "F8_E4M3", 1},
    {"{\"a\":" TENSOR("F32", "[1]", 0, 4) ",\"a\":" TENSOR("F32", "[1]", 4, 8) "}", "JSON", 8},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "data_offsets", 4},
    {"{\"a\":7}", "no dtype", 0},
    {"{\"__metadata__\":{\"a\":7}}", "no text", 0},
    {"{\"__metadata__\":[]}", "map of texts", 0},
    {"[]", "JSON object", 0},
    {" {}", "JSON object", 0},
    {"{} x", "JSON", 0},
    {"{\"a\\u0000b\":1}", "JSON", 0},
    {"", "JSON object", 0},
  };
  for (int i = 0; i < NEAP_COUNT(wrong); i++) {
    const char *path = put_safetensors(wrong[i].json, wrong[i].n_data);
    CHECK_FAILS(try_load(path, &error), NEAP_DATA, wrong[i].words);
    CHECK_FAILS(try_load(path, &error), NEAP_DATA, path);
  }

  /* A header longer than any file, and no header at all. */
  static const unsigned char endless[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'};
  CHECK_FAILS(try_load(put_file("endless.safetensors", endless, sizeof endless), &error), NEAP_DATA,
              "claims");
  CHECK_FAILS(try_load(put_file("endless.safetensors", "", 0), &error), NEAP_DATA, "truncated");

  /* and right ones: empty tensors anywhere, blanks after the header, narrow integers */
  neap_io_list list;
  CHECK_OK(
    neap_io_load(put_safetensors("{\"e\":" TENSOR("F32", "[0,1099511627776,8]", 2,
                                                  2) ",\"a\":" TENSOR("U16", "[1]", 0, 2) "}   ",
                                 2),
                 NEAP_IO_COPY, &list, &error));
  CHECK(list.n_item == 2 && list.item[0].tensor.dtype == NEAP_DTYPE_U16);
  neap_io_list_fini(&list);
}

TEST(save_refuses_what_the_format_cannot_hold) {
  neap_io_item item[2] = {{"x", count_up(NEAP_DTYPE_F32, NEAP_SHAPE(3))}, {"y", {0}}};
  neap_io_pair meta = {"a", "b"}, broken = {"a", "\xff\xfe"};
  CHECK_FAILS(neap_io_save(in_folder("x.txt"), 1, item, 0, NULL, &error), NEAP_ARGUMENT, "ends in");
  CHECK_FAILS(neap_io_save(in_folder("y.npy"), 2, item, 0, NULL, &error), NEAP_ARGUMENT,
              "one tensor");
  CHECK_FAILS(neap_io_save(in_folder("y.npz"), 2, item, 0, NULL, &error), NEAP_ARGUMENT,
              "no tensor");
  CHECK_FAILS(neap_io_save(in_folder("y.npz"), 1, item, 1, &meta, &error), NEAP_ARGUMENT,
              "metadata");
  CHECK_FAILS(neap_io_save(in_folder("y.safetensors"), 1, item, 1, &broken, &error), NEAP_ARGUMENT,
              "UTF-8");
  item[0].name = "__metadata__";
  CHECK_FAILS(neap_io_save(in_folder("y.safetensors"), 1, item, 0, NULL, &error), NEAP_ARGUMENT,
              "__metadata__");
  item[0].name = "";
  CHECK_FAILS(neap_io_save(in_folder("y.npz"), 1, item, 0, NULL, &error), NEAP_ARGUMENT, "no name");
  CHECK(!there(in_folder("y.npz")) && !there(in_folder("y.safetensors")) &&
        !there(in_folder("y.npy")));
  neap_tensor_fini(&item[0].tensor);
}

/* ---- damaged files of every format ----------------------------------------------------------- */

typedef neap_status load_function(const char *path, neap_error *error);

/* Every shorter file is refused; every file with a flipped bit is refused or loaded, and nothing is
 * left behind. */
static void check_damage(const char *name, const char *path, load_function *load) {
  neap_io_bytes whole = read_whole(path);
  int64_t live = neap_memory_read().n_live;
  for (size_t n = 0; n < whole.n; n++) {
    neap_error error = {0};
    neap_status status = load(put_file(name, whole.data, n), &error);
    if (status != NEAP_DATA)
      printf("  %s cut to %zu of %zu bytes gives %s\n", name, n, whole.n, neap_status_text(status));
    CHECK_EQ(status, NEAP_DATA);
  }

  /* One bit at a time; what loads in spite of it may hold other numbers, but no more memory than
   * such a file can fill. */
  neap_memory_reset_high();
  int64_t high = neap_memory_read().high_bytes[NEAP_DATA_BYTES];
  for (size_t i = 0; i < 8 * whole.n; i++) {
    neap_error error = {0};
    whole.data[i / 8] ^= (char)(1 << i % 8);
    neap_status status = load(put_file(name, whole.data, whole.n), &error);
    whole.data[i / 8] ^= (char)(1 << i % 8);
    CHECK(status == NEAP_OK || (status == NEAP_DATA && strstr(error.message, name) != NULL));
  }

  /* claims are not believed */
  CHECK(neap_memory_read().high_bytes[NEAP_DATA_BYTES] - high < (int64_t)(1200 * whole.n));
  CHECK_EQ(neap_memory_read().n_live, live);
  neap_free(whole.data);
}

static neap_status try_idx(const char *path, neap_error *error) {
  neap_tensor t = {0};
  neap_status status = neap_io_read_idx(path, &t, error);
  neap_tensor_fini(&t);
  return status;
}

static const unsigned char small_idx[] = {0, 0, 0x0B, 2, 0, 0, 0,    2,    0, 0, 0, 3,
                                          0, 1, 0,    2, 0, 3, 0xff, 0xff, 1, 0, 0, 9};

TEST(damaged_files_are_refused_and_never_believed) {
  unsigned char bytes[512];
  neap_io_item item[2] = {{"x", count_up(NEAP_DTYPE_F32, NEAP_SHAPE(2, 3))},
                          {"y", count_up(NEAP_DTYPE_U8, NEAP_SHAPE(5))}};
  CHECK_OK(neap_io_save(in_folder("whole.npy"), 1, item, 0, NULL, &error));
  CHECK_OK(neap_io_save(in_folder("whole.npz"), 2, item, 0, NULL, &error));
  CHECK_OK(neap_io_save(in_folder("whole.safetensors"), 2, item, 0, NULL, &error));
  check_damage("damaged.npy", in_folder("whole.npy"), try_load);
  check_damage("damaged.npz", in_folder("whole.npz"), try_load);
  check_damage("damaged.safetensors", in_folder("whole.safetensors"), try_load);
  check_damage("deflated.npz", put_file("whole_deflated.npz", bytes, unhex(deflated_hex, bytes)),
               try_load);
  check_damage("damaged.idx", put_file("whole.idx", small_idx, sizeof small_idx), try_idx);
  neap_tensor_fini(&item[0].tensor), neap_tensor_fini(&item[1].tensor);
}

/* ---- idx, gzip, text ------------------------------------------------------------------------- */

TEST(idx_numbers_are_big_endian) {
  neap_tensor t;
  CHECK_OK(neap_io_read_idx(put_file("small.idx", small_idx, sizeof small_idx), &t, &error));
  static const int expected[] = {1, 2, 3, -1, 256, 9};
  CHECK(t.dtype == NEAP_DTYPE_I16 && t.shape.n_dim == 2 && t.shape.dim[0] == 2);
  for (int i = 0; i < 6; i++)
    CHECK_EQ(neap_element_get_i64(t.dtype, neap_tensor_data(&t), i), expected[i]);
  neap_tensor_fini(&t);
  CHECK_FAILS(try_idx(put_file("more.idx", (char[]){0, 0, 8, 1, 0, 0, 0, 1, 5, 6}, 10), &error),
              NEAP_DATA, "bytes after");
  CHECK_FAILS(try_idx(put_file("huge.idx",
                               "\0\0\x0E\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16),
                      &error),
              NEAP_DATA, "more bytes than");
  CHECK_FAILS(try_idx(put_file("nine.idx", "\0\0\x08\x09", 4), &error), NEAP_DATA, "9 dimensions");
  CHECK_FAILS(try_idx(put_file("other.idx", "\x89PNG", 4), &error), NEAP_DATA, "not an idx file");
  CHECK_FAILS(try_idx(in_folder("missing.idx"), &error), NEAP_IO, "missing.idx");
}

TEST(mnist_is_read) {
  if (!there(MNIST "train-images-idx3-ubyte.gz")) SKIP("no " MNIST);
  neap_tensor x, y;
  CHECK_OK(neap_io_read_idx(MNIST "train-images-idx3-ubyte.gz", &x, &error));
  CHECK_OK(neap_io_read_idx(MNIST "train-labels-idx1-ubyte.gz", &y, &error));
  neap_shape images = NEAP_SHAPE(60000, 28, 28), labels = NEAP_SHAPE(60000);
  CHECK(x.dtype == NEAP_DTYPE_U8 && neap_shape_equal(&x.shape, &images));
  CHECK(y.dtype == NEAP_DTYPE_U8 && neap_shape_equal(&y.shape, &labels));
  static const unsigned char first[] = {5, 0, 4, 1, 9, 2, 1, 3};
  CHECK(memcmp(neap_tensor_data(&y), first, sizeof first) == 0);
  int64_t sum = 0; /* the known mean of the pixels is 33.318 */
  for (int64_t i = 0; i < neap_tensor_elems(&x); i++)
    sum += ((unsigned char *)neap_tensor_data(&x))[i];
  CHECK_NEAR((double)sum / (double)neap_tensor_elems(&x), 33.318, 0.001);
  neap_tensor_fini(&x), neap_tensor_fini(&y);
}

TEST(gzip_files_are_unpacked_and_plain_ones_read) {
  neap_io_bytes bytes;
  CHECK_OK(neap_io_read_gz_bytes(put_file("plain.txt", "high and low\0water", 18), &bytes, &error));

  /* and a 0 at the end */
  CHECK(bytes.n == 18 && memcmp(bytes.data, "high and low\0water", 19) == 0);
  neap_free(bytes.data);
  CHECK_OK(neap_io_read_gz_bytes(put_file("empty.txt", "", 0), &bytes, &error));
  CHECK(bytes.n == 0 && bytes.data[0] == 0);
  neap_free(bytes.data);
  if (!there(MNIST "t10k-labels-idx1-ubyte.gz")) SKIP("no " MNIST);
  CHECK_OK(neap_io_read_gz_bytes(MNIST "t10k-labels-idx1-ubyte.gz", &bytes, &error));
  CHECK(bytes.n == 10008 && bytes.data[8] == 7 && bytes.data[9] == 2);
  neap_free(bytes.data);
  neap_io_bytes packed = read_whole(MNIST "t10k-labels-idx1-ubyte.gz");
  CHECK_FAILS(neap_io_read_gz_bytes(put_file("cut.gz", packed.data, packed.n - 9), &bytes, &error),
              NEAP_DATA, "cut.gz");
  packed.data[packed.n / 2] ^= 1;
  CHECK_FAILS(try_idx(put_file("bad.gz", packed.data, packed.n), &error), NEAP_DATA, "bad.gz");
  neap_free(packed.data);
}

TEST(text_is_read_and_written_whole) {
  neap_io_bytes bytes;
  CHECK_OK(neap_io_write_text(in_folder("note.txt"), "tide", 4, &error));
  CHECK_OK(neap_io_read_text(in_folder("note.txt"), &bytes, &error));
  CHECK(bytes.n == 4 && strcmp(bytes.data, "tide") == 0);
  neap_free(bytes.data);
  CHECK_FAILS(neap_io_read_text(in_folder("missing.txt"), &bytes, &error), NEAP_IO,
              "missing.txt: cannot be opened: No such file");
  CHECK_FAILS(neap_io_read_text(folder, &bytes, &error), NEAP_IO, "directory");
  CHECK_FAILS(neap_io_read_text("/dev/zero", &bytes, &error), NEAP_IO, "not a regular file");
  CHECK_FAILS(neap_io_write_text(in_folder("no/such/folder.txt"), "x", 1, &error), NEAP_IO,
              "No such file");
  CHECK_FAILS(neap_io_write_text(folder, "x", 1, &error), NEAP_IO, "not a regular file");
}

/* ---- real samples ---------------------------------------------------------------------------- */

TEST(real_samples_are_read_and_pickles_refused) {
  if (!there(SAMPLES "burn_mnist.safetensors")) SKIP("no " SAMPLES);
  neap_io_list list;
  CHECK_OK(neap_io_load(SAMPLES "burn_mnist.safetensors", NEAP_IO_MAP_READ, &list, &error));
  CHECK_EQ(list.n_item, 20);
  neap_io_list_fini(&list);
  CHECK_OK(neap_io_load(SAMPLES "burn_multi_layer.safetensors", NEAP_IO_COPY, &list, &error));
  CHECK_EQ(list.n_item, 9);
  neap_io_list_fini(&list);
  CHECK_OK(neap_io_load(SAMPLES "candle_csm_voices.safetensors", NEAP_IO_COPY, &list, &error));
  CHECK(list.n_item > 0);
  neap_io_list_fini(&list);
  CHECK_OK(neap_io_load(SAMPLES "candle_jfk-codes.safetensors", NEAP_IO_COPY, &list, &error));
  CHECK(list.n_item > 0 && list.item[0].tensor.dtype == NEAP_DTYPE_I64);
  neap_io_list_fini(&list);
  neap_tensor t = load_one(SAMPLES "candle_test.npy");
  CHECK_EQ(neap_tensor_elems(&t), 10);
  for (int i = 0; i < 10; i++) CHECK(neap_element_get(t.dtype, neap_tensor_data(&t), i) == i);
  neap_tensor_fini(&t);
  CHECK_OK(neap_io_load(SAMPLES "candle_test.npz", NEAP_IO_COPY, &list, &error));
  CHECK_EQ(list.n_item, 2);
  neap_io_list_fini(&list);
  static const char *const pickles[] = {"py2-np0-objarr.npy", "py2-objarr.npy", "py2-objarr.npz",
                                        "py3-objarr.npy", "py3-objarr.npz"};
  for (int i = 0; i < NEAP_COUNT(pickles); i++) {
    char path[128];
    snprintf(path, sizeof path, SAMPLES "numpy_reject_%s", pickles[i]);
    CHECK_FAILS(try_load(path, &error), NEAP_DATA, "Python objects");
  }
}

/* ---- refused memory and full disks ----------------------------------------------------------- */

/* Files of three forms: the third one holds one tensor, the second one metadata too. */
static const char *const forms[] = {"f.npz", "f.safetensors", "f.npy"};
static neap_status save_form(int form, const neap_io_item *item, neap_error *error) {
  neap_io_pair meta = {"seed", "42"};
  bool alone = form == 2;
  return neap_io_save(in_folder(forms[form]), alone ? 1 : N_ITEMS, alone ? &item[11] : item,
                      form == 1, &meta, error);
}

/* Each form saved, and loaded; then what else takes memory: a packed file, an idx file, a cast. */
enum { N_WAY = 9 };
static neap_status take_way(int way, const neap_io_item *item, neap_io_map map, neap_io_list *list,
                            neap_tensor *t, neap_error *error) {
  if (way < 3) return save_form(way, item, error);
  if (way < 6) return neap_io_load(in_folder(forms[way - 3]), map, list, error);
  if (way == 6) return neap_io_load(in_folder("f_deflated.npz"), NEAP_IO_COPY, list, error);
  if (way == 7) return neap_io_read_idx(in_folder("f.idx"), t, error);
  return neap_tensor_clone(&item[11].tensor, NEAP_DTYPE_F16, t, error);
}

TEST(refused_memory_leaves_nothing_behind) {
  neap_io_item item[N_ITEMS];
  unsigned char bytes[512];
  make_items(item);
  put_file("f_deflated.npz", bytes, unhex(deflated_hex, bytes));
  put_file("f.idx", small_idx, sizeof small_idx);

  /* Files to load, made while nothing is refused. */
  for (int f = 0; f < 3; f++) CHECK_OK(save_form(f, item, &error));
  int files = n_files(), failures = 0;
  int64_t live = neap_memory_read().n_live;
  for (int way = 0; way < N_WAY; way++)
    for (int n = 1; n < 1000; n++) {
      neap_error error = {0};
      neap_io_list list = {0};
      neap_tensor t = {0};
      neap_memory_fail_nth(n, n % 2 == 0);
      neap_status status = take_way(way, item, (neap_io_map)(n % 3), &list, &t, &error);
      bool failed = neap_memory_failed();
      neap_memory_fail_nth(0, false);
      if (status != (failed ? NEAP_MEMORY : NEAP_OK))
        printf("  way %d, allocation %d: %s\n", way, n, error.message);
      CHECK_EQ(status, failed ? NEAP_MEMORY : NEAP_OK);

      if (status != NEAP_OK) CHECK(list.n_item == 0 && list.item == NULL && t.storage == NULL);
      neap_io_list_fini(&list);
      neap_tensor_fini(&t);
      CHECK_EQ(neap_memory_read().n_live, live);
      if (n > 3 && !failed) break; /* three times, for the three ways to map */
      failures += failed;
    }
  CHECK(failures > 90);
  CHECK_EQ(n_files(), files);
  free_items(item);
}

/* A temporary file as a process that was killed leaves it, or, when its descriptor is kept, as a
 * live one holds it. */
static int half_written(const char *name) {
  int fd = open(in_folder(name), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  CHECK(fd >= 0 && write(fd, "half", 4) == 4 && flock(fd, LOCK_EX | LOCK_NB) == 0);
  return fd;
}

TEST(what_killed_writers_of_a_path_left_is_removed_and_nothing_else) {
  char path[400];
  snprintf(path, sizeof path, "%s", in_folder("c.npy"));
  int n_before = n_files();
  neap_tensor t = count_up(NEAP_DTYPE_F32, NEAP_SHAPE(3));
  neap_io_item item = {(char *)"", t};
  char own[64];

  /* in a container the next process may have the same number */
  snprintf(own, sizeof own, "c.npy.%ld-1.tmp", (long)getpid());
  close(half_written("c.npy.4711-0.tmp"));
  close(half_written(own));
  int live = half_written("c.npy.4712-0.tmp");
  static const char *const others[] = {"c.npy.4711-0.tmp2", "c.npy.x-0.tmp",    "c.npy.4711.tmp",
                                       "c.npy.-.tmp",       "d.npy.4711-0.tmp", "c.npy.1-2-3.tmp"};
  for (int i = 0; i < NEAP_COUNT(others); i++) put_file(others[i], "kept", 4);
  CHECK(mkdir(in_folder("c.npy.4713-0.tmp"), 0700) == 0);
  CHECK(symlink("c.npy.x-0.tmp", in_folder("c.npy.4714-0.tmp")) == 0);
  CHECK_OK(neap_io_save(path, 1, &item, 0, NULL, &error));
  CHECK(!there(in_folder("c.npy.4711-0.tmp")) && !there(in_folder(own)));
  CHECK(there(in_folder("c.npy.4712-0.tmp")));
  for (int i = 0; i < NEAP_COUNT(others); i++) CHECK(there(in_folder(others[i])));
  CHECK(there(in_folder("c.npy.4713-0.tmp")) && there(in_folder("c.npy.4714-0.tmp")));
  close(live); /* as if it had been killed */
  CHECK_OK(neap_io_save(path, 1, &item, 0, NULL, &error));
  CHECK(!there(in_folder("c.npy.4712-0.tmp")));
  for (int i = 0; i < NEAP_COUNT(others); i++) unlink(in_folder(others[i]));
  rmdir(in_folder("c.npy.4713-0.tmp")), unlink(in_folder("c.npy.4714-0.tmp")), unlink(path);
  neap_tensor_fini(&t);
  CHECK_EQ(n_files(), n_before);
}

/* Saves one path over and over; the number of failures. */
static void *save_often(void *context) {
  const char *path = context;
  neap_tensor t = {0};
  neap_error error = {0};
  neap_shape shape = NEAP_SHAPE(1000);
  intptr_t n_failed = neap_tensor_new(&t, NEAP_DTYPE_U8, &shape, &error) != NEAP_OK;
  neap_io_item item = {(char *)"", t};
  if (n_failed == 0) memset(neap_tensor_data(&t), 1, 1000);
  for (int i = 0; i < 60 && n_failed == 0; i++)
    n_failed += neap_io_save(path, 1, &item, 0, NULL, &error) != NEAP_OK;
  neap_tensor_fini(&t);
  return (void *)n_failed;
}

TEST(writers_of_one_path_do_not_take_each_others_files_away) {
  enum { N = 4 };
  char path[400];
  snprintf(path, sizeof path, "%s", in_folder("same.npy"));
  int n_before = n_files();
  pthread_t thread[N];
  for (int i = 0; i < N; i++) CHECK_EQ(pthread_create(&thread[i], NULL, save_often, path), 0);
  for (int i = 0; i < N; i++) {
    void *n_failed = NULL;
    pthread_join(thread[i], &n_failed);
    CHECK_EQ((intptr_t)n_failed, 0);
  }
  CHECK_EQ(n_files(), n_before + 1); /* whatever came last, and no temporary file */
  unlink(path);
}

TEST(a_full_disk_leaves_the_old_file) {
  static const char *const names[] = {"full.npy", "full.npz", "full.safetensors"};
  neap_io_item small = {"x", count_up(NEAP_DTYPE_F32, NEAP_SHAPE(4))},
               large = {"x", count_up(NEAP_DTYPE_F32, NEAP_SHAPE(100000))};
  for (int f = 0; f < 3; f++) {
    const char *path = in_folder(names[f]);
    CHECK_OK(neap_io_save(path, 1, &small, 0, NULL, &error));
    chmod(path, 0640);
    int files = n_files();
    /* a limit on the size of files fails a write in the middle, as a full disk does */
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 65536;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK_FAILS(neap_io_save(path, 1, &large, 0, NULL, &error), NEAP_IO, names[f]);
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_EQ(n_files(), files);
    neap_tensor t = load_one(path);
    CHECK(same_tensor(&t, &small.tensor));
    neap_tensor_fini(&t);
    CHECK_OK(neap_io_save(path, 1, &large, 0, NULL, &error));
    struct stat info;
    /* who may read it has not changed */
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640);
  }
  neap_tensor_fini(&small.tensor), neap_tensor_fini(&large.tensor);
}

int main(int argc, char **argv) {
  if (!make_folder()) return 1;
  int failed = RUN(
    argc, argv, T(what_is_saved_is_loaded), T(the_same_content_gives_the_same_bytes),
    T(mapped_files_are_views_that_never_write_back), T(npy_versions_orders_and_number_formats),
    T(mapped_fortran_order_is_a_view), T(npy_that_is_wrong_is_refused),
    T(deflated_npz_members_are_unpacked_and_checked), T(npz_that_is_wrong_is_refused),
    T(safetensors_that_is_wrong_is_refused), T(save_refuses_what_the_format_cannot_hold),
    T(damaged_files_are_refused_and_never_believed), T(idx_numbers_are_big_endian),
    T(mnist_is_read), T(gzip_files_are_unpacked_and_plain_ones_read),
    T(text_is_read_and_written_whole), T(real_samples_are_read_and_pickles_refused),
    T(refused_memory_leaves_nothing_behind),
    T(what_killed_writers_of_a_path_left_is_removed_and_nothing_else),
    T(writers_of_one_path_do_not_take_each_others_files_away), T(a_full_disk_leaves_the_old_file));
  empty_folder();
  return failed;
}
