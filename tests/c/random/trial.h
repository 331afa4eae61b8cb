/* trial.h: a net that is run in one way and compared with another: what all ways have in common. */
#ifndef NEAP_TESTS_TRIAL_H
#define NEAP_TESTS_TRIAL_H

#include "random/ways.h"

#include "driver/driver.h"

enum { N_STEP = 3 };

/* Where a net runs: in a workspace of its own, in a child, in a child that sees forwarded names
 * alone. */
typedef enum lodging { OWN, CHILD, FORWARDED } lodging;

typedef struct ran {
  neap_workspace *outer, *ws; /* outer: the parent, where there is one */
  neap_session *session;
} ran;

void ran_close(ran *r);
/* The inputs of a step, the first `rows` rows of them (0: all); the condition c is 0 and 1 by
 * turns. `before` is put before the names of inputs. */
neap_status feed_inputs(neap_workspace *ws, const neap_net *net, int at_step, int64_t rows,
                        const char *before, neap_error *error);
/* N_STEP steps; *r is the caller's to close, also after a failure. */
neap_status run_net(const neap_net *net, const neap_compile_options *o, lodging where, bool poison,
                    ran *r, neap_error *error);

typedef struct comparison {
  neap_workspace *plain, *other;
  int n_same;
  /* programs: what one has kept may be released by another, which has written it and kept no
   * bytes */
  bool several;
  char different[200];
} comparison;

typedef struct trial {
  const recipe *recipe;
  made made;
  neap_net *net;
  neap_compile_options options; /* unplanned */
  ran plain;
  totals *totals;
  fault *fault;
  const char *only;
} trial;

/* Notes what has failed; gives false. */
bool fail(trial *t, const char *way, const char *message);
/* Whether this way is to be taken. */
bool begins(trial *t, const char *way);
/* The ways that several programs share addresses in: offset, offset in a dag, name. `what` is
 * planned so: "range, offset, dag". */
enum { N_PLANNED = 3 };
typedef struct planned {
  char name[64];
  neap_plan_options plan;
} planned;
planned planned_way(const char *what, int k);
/* Every blob with bytes of its own in c->plain; those that are transient there are compared where
 * they can be had. */
bool compared(trial *t, const char *way, comparison *c);
/* Another net, or other options, that must give what the plain run gives. *out (may be NULL) gets
 * the run. */
bool agrees(trial *t, const char *way, const neap_net *net, const neap_compile_options *o,
            lodging where, ran *out);

/* The turns of a program that runs some of them side by side wait for each other where their bytes
 * do (turns.c). */
bool turns_wait(trial *t, const char *way, const neap_program *program);

/* Several programs in one workspace, ops run eagerly, ranges of batches, micro-batches
 * (programs.c). */
bool programs_agree(trial *t);
/* The same steps as layers of a chain (chains.c). */
bool chains_agree(trial *t);
/* The blob `name` gets numbers that follow from `salt`. */
neap_status feed_numbers(neap_workspace *ws, const char *name, const neap_type *type, int salt,
                         neap_error *error);

#endif
