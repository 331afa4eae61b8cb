/* sound.c: WAV files, through libsndfile, which reads and writes bytes in memory here. */
#include "io/picture.h"

#include <sndfile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANNELS = 64, FRAMES_AT_ONCE = 4096 };

/* A file in memory.
 * INVARIANT: 0 <= at; data has room for cap bytes, n of them written; cap is 0 of one to read. */
typedef struct memory {
  char *data;
  sf_count_t n, cap, at;
} memory;

static sf_count_t get_length(void *context) { return ((memory *)context)->n; }

static sf_count_t tell(void *context) { return ((memory *)context)->at; }

static sf_count_t seek(sf_count_t offset, int whence, void *context) {
  memory *m = context;
  sf_count_t from = 0, to;
  if (whence == SEEK_CUR) from = m->at;
  if (whence == SEEK_END) from = m->n;
  if (__builtin_add_overflow(from, offset, &to) || to < 0) return -1;
  return m->at = to;
}

static sf_count_t read_bytes(void *to, sf_count_t n, void *context) {
  memory *m = context;
  sf_count_t got = NEAP_MAX(NEAP_MIN(n, m->n - m->at), 0);
  neap_copy_bytes(to, m->data + (got > 0 ? m->at : 0), (size_t)got);
  m->at += got;
  return got;
}

/* Fewer bytes than asked for where memory is refused, which libsndfile takes for a full disk. */
static sf_count_t write_bytes(const void *from, sf_count_t n, void *context) {
  memory *m = context;
  /* Twice what is needed, so that writing in small pieces copies each byte a few times at most. */
  sf_count_t end = m->at + n;
  if (end > m->cap) {
    char *wider = neap_realloc(m->data, (size_t)(2 * end));
    if (wider == NULL) return 0;
    memset(wider + m->cap, 0, (size_t)(2 * end - m->cap));
    m->data = wider;
    m->cap = 2 * end;
  }
  memcpy(m->data + m->at, from, (size_t)n);
  m->at = end;
  m->n = NEAP_MAX(m->n, end);
  return n;
}

static SF_VIRTUAL_IO in_memory = {get_length, seek, read_bytes, write_bytes, tell};

bool neap_io_is_sound(const void *start, size_t n) {
  const char *s = start;
  return n >= 12 &&
         (memcmp(s, "RIFF", 4) == 0 || memcmp(s, "RIFX", 4) == 0 || memcmp(s, "RF64", 4) == 0) &&
         memcmp(s + 8, "WAVE", 4) == 0;
}

/* All frames, channels side by side; what the header says of their number is not believed. */
static neap_status read_frames(const char *path, SNDFILE *file, int channels, float **out,
                               sf_count_t *n_frame, neap_error *error) {
  /* Room doubles, so that a frame is copied a few times at most, whatever the header claims. */
  sf_count_t n = 0, cap = 0, got = 1;
  while (got > 0) {
    if (n + FRAMES_AT_ONCE > cap) {
      size_t bytes = (size_t)(2 * cap + FRAMES_AT_ONCE) * (size_t)channels * sizeof(float);
      float *wider = neap_realloc(*out, bytes);
      if (wider == NULL) return neap_fail_memory(error, bytes, path);
      *out = wider;
      cap = 2 * cap + FRAMES_AT_ONCE;
    }
    got = sf_readf_float(file, *out + n * channels, FRAMES_AT_ONCE);
    n += NEAP_MAX(got, 0);
  }
  *n_frame = n;
  if (sf_error(file) != SF_ERR_NO_ERROR)
    return neap_fail(error, NEAP_DATA, "%s: damaged WAV file: %s", path, sf_strerror(file));
  return NEAP_OK;
}

/* DATA error where the header says more than the file has, which libsndfile takes as it is; writers
 * to pipes, who know no size, say all ones. */
static neap_status check_size(const char *path, const unsigned char *s, size_t n,
                              neap_error *error) {
  /* Bytes 4 to 7, big-endian in RIFX. */
  uint32_t size = s[3] == 'X' ? (uint32_t)s[4] << 24 | (uint32_t)s[5] << 16 | s[6] << 8 | s[7]
                              : (uint32_t)s[7] << 24 | (uint32_t)s[6] << 16 | s[5] << 8 | s[4];
  if (size == UINT32_MAX || size <= n - 8) return NEAP_OK;
  return neap_fail(error, NEAP_DATA, "%s: truncated WAV file: %zu of %lld bytes are there", path, n,
                   (long long)size + 8);
}

/* One tensor (channels,frames) without a name, and the rate. */
neap_status neap_io_sound_load(const char *path, const void *bytes, size_t n, neap_io_list *list,
                               neap_error *error) {
  NEAP_TRY(check_size(path, bytes, n, error));
  memory m = {.data = (char *)(uintptr_t)bytes, .n = (sf_count_t)n};
  SF_INFO info = {0};
  SNDFILE *file = sf_open_virtual(&in_memory, SFM_READ, &info, &m);
  if (file == NULL)
    return neap_fail(error, NEAP_DATA, "%s: damaged WAV file: %s", path, sf_strerror(NULL));
  float *frames = NULL;
  neap_tensor t = {0};
  sf_count_t n_frame = 0;
  neap_status status = NEAP_OK;
  if (info.channels < 1 || info.channels > MOST_CHANNELS || info.samplerate < 1)
    status = neap_fail(error, NEAP_DATA, "%s: a WAV file of %d channels and a rate of %d", path,
                       info.channels, info.samplerate);
  if (status == NEAP_OK) status = read_frames(path, file, info.channels, &frames, &n_frame, error);
  neap_shape shape = NEAP_SHAPE(info.channels, n_frame);
  /* Frames have all channels of one moment; a tensor one channel after the other. */
  if (status == NEAP_OK) status = neap_tensor_new(&t, NEAP_DTYPE_F32, &shape, error);
  sf_close(file);
  if (status == NEAP_OK) {
    float *out = (float *)neap_tensor_data(&t);
    for (int64_t i = 0; i < n_frame; i++)
      for (int c = 0; c < info.channels; c++) out[c * n_frame + i] = frames[i * info.channels + c];
    char rate[NEAP_INTEGER_TEXT];
    snprintf(rate, sizeof rate, "%d", info.samplerate);
    status = neap_io_list_add(list, "", 0, &t, error);
    if (status == NEAP_OK) status = neap_io_list_add_meta(list, "rate", rate, error);
  }
  neap_free(frames);
  return status;
}

/* {rate, bits} of the texts that go along; ARGUMENT error for others. */
static neap_status read_meta(const char *path, int n_meta, const neap_io_pair *meta, SF_INFO *info,
                             neap_error *error) {
  static const struct {
    const char *name;
    int format;
  } bits[] = {{"8", SF_FORMAT_PCM_U8},
              {"16", SF_FORMAT_PCM_16},
              {"24", SF_FORMAT_PCM_24},
              {"32", SF_FORMAT_PCM_32},
              {"float", SF_FORMAT_FLOAT}};

  /* 16 bits where nothing is said: what every player takes. */
  info->format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  for (int i = 0; i < n_meta; i++) {
    char *end = NULL;
    int k = 0;
    if (strcmp(meta[i].key, "rate") == 0) {
      /* One that is no such number stays 0, and is told of below as a rate that is missing. */
      long rate = strtol(meta[i].value, &end, 10);
      if (*end == '\0' && rate > 0 && rate <= 10000000) info->samplerate = (int)rate;
    } else if (strcmp(meta[i].key, "bits") == 0) {
      while (k < NEAP_COUNT(bits) && strcmp(bits[k].name, meta[i].value) != 0) k++;
      if (k == NEAP_COUNT(bits))
        return neap_fail(error, NEAP_ARGUMENT,
                         "%s: bits expects \"8\", \"16\", \"24\", \"32\" or \"float\", got \"%s\"",
                         path, meta[i].value);
      info->format = SF_FORMAT_WAV | bits[k].format;
    } else {
      return neap_fail(error, NEAP_ARGUMENT,
                       "%s: a WAV file's meta has \"rate\" and \"bits\", not \"%s\"", path,
                       meta[i].key);
    }
  }
  if (info->samplerate > 0) return NEAP_OK;
  return neap_fail(
    error, NEAP_ARGUMENT,
    "%s: a WAV file needs its rate, samples a second: { meta = { rate = \"16000\" } }", path);
}

neap_status neap_io_sound_save(const char *path, const neap_tensor *dense, int n_meta,
                               const neap_io_pair *meta, neap_error *error) {
  const neap_shape *s = &dense->shape;
  char text[NEAP_SHAPE_TEXT];
  if (dense->dtype != NEAP_DTYPE_F32 || s->n_dim < 1 || s->n_dim > 2 ||
      (s->n_dim == 2 && (s->dim[0] < 1 || s->dim[0] > MOST_CHANNELS)))
    return neap_fail(error, NEAP_ARGUMENT,
                     "%s: a sound is an f32 tensor (channels,samples) or (samples), got %s %s",
                     path, neap_dtype_name(dense->dtype), neap_shape_text(s, text));
  SF_INFO info = {.channels = s->n_dim == 2 ? (int)s->dim[0] : 1};
  NEAP_TRY(read_meta(path, n_meta, meta, &info, error));
  /* Channels side by side; beyond -1 and 1 is as loud as there. */
  int64_t n = s->dim[s->n_dim - 1];
  const float *in = (const float *)neap_tensor_data(dense);
  size_t bytes = (size_t)(n * info.channels) * sizeof(float);
  float *frames = neap_alloc(bytes);
  if (frames == NULL) return neap_fail_memory(error, bytes, path);
  for (int64_t i = 0; i < n; i++)
    for (int c = 0; c < info.channels; c++) frames[i * info.channels + c] = in[c * n + i];
  memory m = {0};
  SNDFILE *file = sf_open_virtual(&in_memory, SFM_WRITE, &info, &m);
  neap_status status = NEAP_OK;
  if (file == NULL) {
    status = neap_fail(error, NEAP_IO, "%s: %s", path, sf_strerror(NULL));
  } else {
    /* Integers would wrap around at what is too loud. */
    sf_command(file, SFC_SET_CLIPPING, NULL, SF_TRUE);
    /* The same samples give the same bytes: no time of writing. */
    sf_command(file, SFC_SET_ADD_PEAK_CHUNK, NULL, SF_FALSE);
    if (sf_writef_float(file, frames, n) != n) status = neap_fail_memory(error, bytes, path);
    if (sf_close(file) != 0 && status == NEAP_OK) status = neap_fail_memory(error, bytes, path);
  }
  neap_free(frames);
  if (status == NEAP_OK) status = neap_io_write_text(path, m.data, (size_t)m.n, error);
  neap_free(m.data);
  return status;
}
