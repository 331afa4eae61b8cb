/* writer.h: a recipe becomes the text of a net. The families of ops (families.c, images.c,
 * control.c) write through this.
 *
 * INVARIANT: what is written is a valid net; one that is refused is a failure of the engine or of
 * the writer.
 */
#ifndef NEAP_TESTS_WRITER_H
#define NEAP_TESTS_WRITER_H

#include "random/recipe.h"
#include "tensor/tensor.h"

/* integers that are inputs: 0 to BOUND - 1 */
enum { MOST_BLOBS = 400, MOST_PARAMS = 160, MOST_READ = 24, BOUND = 4 };

typedef struct blob {
  char name[24];
  int id;    /* of its own: what a draw picks by */
  int maker; /* the step */
  neap_type type;
  int bound;        /* integers: all are in 0 .. bound - 1; 0: unknown */
  bool batched;     /* its first dimension is the batch */
  bool may_rewrite; /* an activation: its name may be written again, and freed */
  bool is_gone;     /* freed */
} blob;

typedef struct param {
  char name[24];
  neap_dtype dtype;
} param;

typedef struct writer {
  const recipe *recipe;
  int step, n_drawn, n_named, n_sub;
  neap_buffer head, body; /* declarations, ops */
  int n_blob, n_param;
  blob blob[MOST_BLOBS];
  param param[MOST_PARAMS];
  int read[MOST_READ], n_read; /* blobs that the op being written reads */
  /* by_rows: nothing but first dimensions depends on the batch: any batch will do */
  bool trains, by_rows;
  bool has_control, has_random, has_state, has_norm;
  neap_dtype real;
} writer;

/* ---- draws ----------------------------------------------------------------------------------- */

int draw_below(writer *w, int n);
bool draw_chance(writer *w, int percent);
#define DRAW_OF(w, list) ((list)[draw_below(w, NEAP_COUNT(list))])

/* ---- blobs ----------------------------------------------------------------------------------- */

/* What a blob must be like to be picked. */
typedef struct want {
  int rank, least_rank;  /* 0: any */
  neap_dtype dtype;      /* NONE: f32 or f64 */
  const neap_type *like; /* the same shape and dtype */
  bool bounded;          /* integers below BOUND */
  int64_t most;          /* elements; 0: any */
  bool unbatched;        /* its shape is the same at all batches */
  bool batched, written; /* its first dimension is the batch; an op makes it */
  int but;               /* 1 + a blob that it is not */
} want;

/* A blob that is as wanted, newer ones likelier, or -1. It is noted as read by the present op. */
int pick(writer *w, want what);
/* One like it, itself where there is no other. */
int pick_like(writer *w, int b);
/* A new blob; and one that is mostly new, at times one that was written before, the input's own
 * name (unless -1) among them. */
int fresh(writer *w, neap_type type, bool batched);
int target(writer *w, neap_type type, bool batched, int input);
/* Declares a parameter or state, and gives its name, which stays. The state is a blob to read as
 * well. */
const char *add_param(writer *w, neap_type type, const char *init);
const char *add_state(writer *w, neap_type type, const char *init);
#define UNIFORM "Uniform { low = -0.5, high = 0.5 }"
#define NEAR_ONE "Uniform { low = 0.5, high = 1.5 }"

/* A type of the dtype of `like`; dims end with 0. */
neap_type type_of(neap_dtype dtype, const int64_t *dim);
#define TYPE(dtype, ...) type_of(dtype, (const int64_t[]){__VA_ARGS__, 0})

#define NAME(w, b) ((w)->blob[b].name)
#define DIM(w, b, axis) ((w)->blob[b].type.shape.dim[axis])
#define RANK(w, b) ((w)->blob[b].type.shape.n_dim)

/* One line of the net. */
void say(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- families -------------------------------------------------------------------------------- */

/* False, with nothing written, where no blob is such that it applies. */
typedef struct family {
  const char *name;
  int weight;
  bool (*add)(writer *w);
} family;
/* end with weight 0 */
extern const family general_families[], image_families[], sequence_families[], control_families[];

/* An op of any family from `x` to `y` of the same type, for the inside of subnets, written with
 * `indent`. The names that it reads besides go to `more`, each behind ", ". False: `x` is no type
 * for one. */
void add_inner(writer *w, const char *indent, const char *y, const char *x, const neap_type *type,
               char *more, size_t room);

/* ---- the whole ------------------------------------------------------------------------------- */

typedef struct made {
  char *text; /* to be freed */
  bool trains, by_rows, has_control, has_random, has_state, has_norm;
  int n_family;
  int *by_family; /* how many steps of each, to be freed; in the order of family_name */
} made;

made write_net(const recipe *r);
/* The texts of n layers, to be freed, among which the recipe's steps are shared out: the input of
 * each is what the one below puts out. Without training; for any batch. */
void write_layers(const recipe *r, int n, char **text);
void made_fini(made *m);
int n_families(void);
const char *family_name(int k);

#endif
