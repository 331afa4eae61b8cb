/* dag.c: executor `dag`. Steps whose kernels give the same bits on one thread as on many run
 * side by side, each on one thread of a team; a step that needs the team that its kernel was chosen
 * for runs alone, between two regions, on the calling thread, which then opens the kernel's own. So
 * a dag gives the bits of executor `simple`, and regions never nest.
 *
 * A step is an instruction of the plan's order or, under policy `pool`, a turn of the script
 * (overlap.c), which takes its bytes before it runs and gives them back when all have run that
 * touch them.
 *
 * Data structure: dependency counts by step and successor lists; two binary heaps of ready steps,
 * those that run alone and those that run side by side; one mutex. INVARIANT: a step enters a heap
 * when all its predecessors have run; the plan is safe in every order that allows. INVARIANT: a
 * region ends only when nothing runs in it and nothing more may, so a step that runs alone is never
 * waited for in a region.
 */
#include "program/program_int.h"

#include <limits.h>
#include <string.h>
#include <time.h>

/* Ready steps, the earliest on top. */
typedef struct heap {
  int *step, n;
} heap;

struct neap_dag {
  int n_step, n_lane;
  neap_lane *lane;
  int *n_before;     /* predecessors by step */
  int *waiting;      /* of n_before, in this run */
  int *first, *list; /* successors of step s: list[first[s] .. first[s+1]) */
  bool *is_alone;    /* by step */
  double *weight;    /* likewise: see weight_of */
  heap alone, beside;
  int n_left, n_running; /* steps that have not run; that run in the region */
  bool stopped;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  neap_arena arena;
};

/* ---- heap ------------------------------------------------------------------------------------ */

static void check_enters_once(const heap *h, int step) {
  for (int k = 0; k < h->n; k++)
    NEAP_ASSERT(h->step[k] != step, "step %d enters a heap once", step);
}

/* Room for every step was made with the heap, and a step enters once. With the mutex held, or
 * outside regions; so below. */
static void push(heap *h, int step) {
  if (NEAP_DEBUG) check_enters_once(h, step);
  /* Later steps on the way to the top move down by one. */
  int at = h->n++;
  for (; at > 0 && h->step[(at - 1) / 2] > step; at = (at - 1) / 2)
    h->step[at] = h->step[(at - 1) / 2];
  h->step[at] = step;
}

/* The earliest ready step: plan order is the order that the planner knows to need the least bytes.
 * Not of an empty heap. */
static int pop(heap *h) {
  /* The last step fills the hole at the top: earlier ones below it move up. */
  int top = h->step[0], last = h->step[--h->n], at = 0;
  while (2 * at + 1 < h->n) {
    int child = 2 * at + 1;
    if (child + 1 < h->n && h->step[child + 1] < h->step[child]) child++;
    if (h->step[child] >= last) break;
    h->step[at] = h->step[child];
    at = child;
  }
  h->step[at] = last;
  NEAP_ASSERT(h->n == 0 || h->step[0] > top, "the earliest step is on top: %d, and then %d", top,
              h->step[0]);
  return top;
}

static int top_of(const heap *h) { return h->n > 0 ? h->step[0] : INT_MAX; }

static void push_ready(neap_dag *dag, int step) {
  NEAP_ASSERT(dag->waiting[step] == 0,
              "a step enters a heap when all its predecessors have run; %d have not of step %d",
              dag->waiting[step], step);
  push(dag->is_alone[step] ? &dag->alone : &dag->beside, step);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Successor lists by counting sort over the edges: O(steps + edges). `waiting` serves as room;
 * begin() sets it for each run. */
static void fill_successors(neap_dag *dag, size_t n_step, int n_edge, const neap_dag_edge *edge) {
  /* Counted one place to the right: the sums are then where each step's part of the list begins. */
  for (int e = 0; e < n_edge; e++) {
    dag->first[edge[e].from + 1]++;
    dag->n_before[edge[e].to]++;
  }
  for (size_t s = 0; s < n_step; s++) dag->first[s + 1] += dag->first[s];
  neap_copy_bytes(dag->waiting, dag->first, n_step * sizeof *dag->waiting); /* as write positions */
  for (int e = 0; e < n_edge; e++) dag->list[dag->waiting[edge[e].from]++] = edge[e].to;
}

static int instruction_of(const neap_program *program, int step) {
  return neap_takes(program) ? program->script.turn[step].step : step;
}

/* From here on a step is worth the team's while, and from here on a region. */
enum { LARGE = 1 << 20, LEAST = 1 << 17 };

/* What there is to do in an instruction, roughly in bytes: some ten of them take a nanosecond of
 * one thread. */
static double weight_of(const neap_program *program, const neap_instruction *i) {
  const neap_node *node = &program->graph->node[i->node];
  if (i->kind == NEAP_INSTRUCTION_NOTHING || i->kind == NEAP_INSTRUCTION_VIEW) return 0;
  if (!i->any_team || neap_instruction_is_control(i->kind) || !i->kernel->any_team)
    return LARGE; /* a library's, or of any length */
  double bytes = 0;
  for (int k = 0; k < i->call.n_in + i->call.n_out; k++) {
    const neap_operand *operand = &i->call.in[k]; /* outputs follow the inputs */
    if (operand->type.dtype != NEAP_DTYPE_NONE)
      bytes += (double)neap_layout_bytes(&operand->type, &operand->layout);
  }
  return bytes + node->cost.flops;
}

/* Whether a step is to have all threads: its bits may depend on them, or there is so much to do
 * that they share it evenly, which two steps side by side may not. */
bool neap_runs_alone(const neap_program *program, const neap_instruction *i) {
  if (!i->any_team) return true;
  /* What uses one thread anyway leaves the others free. */
  if (i->call.n_thread == 1 || neap_instruction_is_control(i->kind)) return false;
  if (i->kernel != NULL && i->kernel->one_thread) return false;
  return weight_of(program, i) > LARGE;
}

static void check_edges(int n_step, int n_edge, const neap_dag_edge *edge) {
  for (int e = 0; e < n_edge; e++)
    NEAP_ASSERT(edge[e].from >= 0 && edge[e].from < edge[e].to && edge[e].to < n_step,
                "edges lead from a smaller step to a larger of %d, so that some step can always "
                "run: %d to %d",
                n_step, edge[e].from, edge[e].to);
}

/* Lanes for as many threads as there are now; a later, larger setting is cut to this. */
neap_status neap_dag_new(neap_program *program, int n_step, int n_edge, const neap_dag_edge *edge,
                         neap_error *error) {
  size_t n = (size_t)n_step;
  neap_dag *dag = neap_alloc_zeroed(sizeof *dag);
  if (dag == NULL) return neap_fail_memory(error, sizeof *dag, "executor dag");
  program->dag = dag; /* freed with the program, also after a failure below */
  pthread_mutex_init(&dag->mutex, NULL);
  pthread_cond_init(&dag->wake, NULL);

  /* All that a run needs is taken here, for the most that it may hold at once: each heap may hold
   * every step. */
  dag->n_step = n_step;
  dag->n_lane = neap_threads();
  dag->lane = neap_arena_alloc(&dag->arena, (size_t)dag->n_lane * sizeof *dag->lane);
  dag->n_before = neap_arena_alloc(&dag->arena, n * sizeof(int));
  dag->waiting = neap_arena_alloc(&dag->arena, n * sizeof(int));
  dag->first = neap_arena_alloc(&dag->arena, (n + 1) * sizeof(int));
  dag->list = neap_arena_alloc(&dag->arena, (size_t)n_edge * sizeof(int));
  dag->is_alone = neap_arena_alloc(&dag->arena, n * sizeof *dag->is_alone);
  dag->weight = neap_arena_alloc(&dag->arena, n * sizeof *dag->weight);
  dag->alone.step = neap_arena_alloc(&dag->arena, n * sizeof(int));
  dag->beside.step = neap_arena_alloc(&dag->arena, n * sizeof(int));
  if (dag->lane == NULL || dag->n_before == NULL || dag->waiting == NULL || dag->first == NULL ||
      dag->list == NULL || dag->is_alone == NULL || dag->weight == NULL ||
      dag->alone.step == NULL || dag->beside.step == NULL)
    return neap_fail_memory(error, n * sizeof(int), "executor dag");
  if (NEAP_DEBUG) check_edges(n_step, n_edge, edge);

  /* What a run asks of each step is the same in all runs: found once. */
  for (int s = 0; s < n_step; s++) {
    const neap_instruction *i = &program->instruction[instruction_of(program, s)];
    dag->is_alone[s] = neap_runs_alone(program, i);
    dag->weight[s] = weight_of(program, i);
  }
  fill_successors(dag, n, n_edge, edge);
  return NEAP_OK;
}

/* The edges of the graph, from step to step of the plan's order. */
neap_status neap_dag_of_graph(neap_program *program, neap_error *error) {
  const neap_graph *graph = program->graph;
  int *step_of = neap_alloc((size_t)graph->n_node * sizeof *step_of);
  neap_dag_edge *edge = neap_alloc((size_t)graph->n_edge * sizeof *edge);
  neap_status status = NEAP_OK;
  if (step_of == NULL || edge == NULL) {
    status = neap_fail_memory(error, (size_t)graph->n_edge * sizeof *edge, "executor dag");
    goto done;
  }

  /* The planner's order runs along all edges, so every edge leads from a smaller step to a larger
   * one. */
  for (int s = 0; s < graph->n_node; s++) step_of[program->plan->order[s]] = s;
  for (int e = 0; e < graph->n_edge; e++)
    edge[e] = (neap_dag_edge){step_of[graph->edge[e].from], step_of[graph->edge[e].to]};
  status = neap_dag_new(program, graph->n_node, graph->n_edge, edge, error);
done:
  neap_free(step_of);
  neap_free(edge);
  return status;
}

void neap_dag_free(neap_dag *dag) {
  if (dag == NULL) return;
  pthread_cond_destroy(&dag->wake);
  pthread_mutex_destroy(&dag->mutex);
  neap_arena_fini(&dag->arena);
  neap_free(dag);
}

const int *neap_dag_successors(const neap_dag *dag, int step, int *n) {
  *n = dag->first[step + 1] - dag->first[step];
  return &dag->list[dag->first[step]];
}

/* ---- running --------------------------------------------------------------------------------- */

/* Sets the run context to the start: nothing has run, the steps without predecessors are ready. */
static void begin(neap_dag *dag) {
  memset(dag->lane, 0, (size_t)dag->n_lane * sizeof *dag->lane);
  neap_copy_bytes(dag->waiting, dag->n_before, (size_t)dag->n_step * sizeof *dag->waiting);
  dag->alone.n = dag->beside.n = dag->n_running = 0;
  dag->n_left = dag->n_step;
  dag->stopped = false;
  for (int s = 0; s < dag->n_step; s++)
    if (dag->n_before[s] == 0) push_ready(dag, s);
}

/* With the mutex held, or outside regions: steps whose last predecessor has run become ready. O(log
 * n) for each of them. */
static void release_successors(neap_dag *dag, int step) {
  dag->n_left--;
  NEAP_ASSERT(dag->n_left >= 0, "each of %d steps runs once; step %d is one more", dag->n_step,
              step);
  for (int k = dag->first[step]; k < dag->first[step + 1]; k++)
    if (--dag->waiting[dag->list[k]] == 0) push_ready(dag, dag->list[k]);
}

/* With the mutex held: until some step may be ready. The calling thread wakes now and then, because
 * signals come in through it alone, and what the others run may be a loop without end. */
static void wait_for_work(neap_dag *dag, neap_run_state *state, const neap_lane *lane) {
  enum { EVERY_NS = 20000000, SECOND_NS = 1000000000 };
  if (lane->thread != 0) {
    pthread_cond_wait(&dag->wake, &dag->mutex);
    return;
  }

  /* The calling thread waits to a point in time, not for a length of it: that is what the library
   * takes. */
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += EVERY_NS;
  if (until.tv_nsec >= SECOND_NS) {
    until.tv_sec++;
    until.tv_nsec -= SECOND_NS;
  }

  /* Woken by another lane: there may be work. */
  if (pthread_cond_timedwait(&dag->wake, &dag->mutex, &until) == 0) return;

  /* A handler may take long, or call back: nobody is to wait for the mutex meanwhile. */
  pthread_mutex_unlock(&dag->mutex);
  neap_run_let_signals_in(state);
  pthread_mutex_lock(&dag->mutex);
}

/* With the mutex held, or outside regions; execute() between them without it. */
static void before(neap_program *program, int step, const neap_run_state *state) {
  if (neap_takes(program)) neap_take_before(program, step, state->run);
}

static void after(neap_program *program, int step, const neap_run_state *state) {
  if (neap_takes(program)) neap_take_after(program, step, state->run);
  release_successors(program->dag, step);
}

static void execute(neap_program *program, int step, neap_run_state *state, neap_lane *lane) {
  neap_program_execute(program, instruction_of(program, step), state, lane);
}

/* What each thread of a region does: steps side by side, until none is ready and none runs that
 * could release one. The mutex is held but while an instruction runs. Others are woken when there
 * is more than the one step that this thread will take itself, or when the region ends. */
static void work(neap_program *program, neap_run_state *state, neap_lane *lane) {
  neap_dag *dag = program->dag;
  pthread_mutex_lock(&dag->mutex);
  while (!dag->stopped) {
    if (neap_run_must_stop(state, lane)) {
      dag->stopped = true;
      break;
    }
    /* Nothing to take: what runs may still release something; if nothing runs, the region is
     * done. */
    if (dag->beside.n == 0) {
      if (dag->n_running == 0) break;
      wait_for_work(dag, state, lane);
      continue;
    }
    /* The instruction itself runs without the mutex: its bytes are its own by the order of
     * edges. */
    int step = pop(&dag->beside);
    dag->n_running++;
    before(program, step, state);
    pthread_mutex_unlock(&dag->mutex);
    execute(program, step, state, lane);
    if (lane->thread == 0) neap_run_let_signals_in(state);
    pthread_mutex_lock(&dag->mutex);
    dag->n_running--;
    after(program, step, state);
    /* One step is this thread's, so others are woken for more than that. */
    if (dag->beside.n > 1) pthread_cond_broadcast(&dag->wake);
  }

  /* Who waits must see that the region has ended. */
  pthread_cond_broadcast(&dag->wake);
  pthread_mutex_unlock(&dag->mutex);
}

typedef struct region {
  neap_program *program;
  neap_run_state *state;
} region;

/* Lane 0 is the calling thread's. One that comes when nothing is left ends at once. */
static void run_lane(void *context, int share) {
  const region *r = context;
  neap_lane *lane = &r->program->dag->lane[share];
  lane->thread = share;
  work(r->program, r->state, lane);
}

/* Steps side by side on n_lane threads. */
static void run_region(neap_program *program, neap_run_state *state, int n_lane) {
  NEAP_ASSERT(!neap_team_is_inside(), "regions never nest; this one, of \"%s\", would",
              program->graph->name);
  neap_team_run(n_lane, run_lane, &(region){program, state});
  const neap_dag *dag = program->dag;
  NEAP_ASSERT(dag->n_running == 0 && (dag->stopped || dag->beside.n == 0),
              "a region ends when nothing runs in it and nothing more may: %d run, %d are ready",
              dag->n_running, dag->beside.n);
}

/* Whether the steps that may run side by side are worth a region, which costs some microseconds:
 * what runs beside the heaviest is not next to nothing. The calling thread runs them one after
 * another else. */
static bool is_worth_region(const neap_dag *dag) {
  double sum = 0, most = 0;
  for (int k = 0; k < dag->beside.n; k++) {
    double weight = dag->weight[dag->beside.step[k]];
    sum += weight;
    most = NEAP_MAX(most, weight);
  }
  return sum - most >= LEAST;
}

/* The earliest ready step on the calling thread, which gives it a region of its own if it wants
 * one. */
static void run_earliest(neap_program *program, neap_run_state *state) {
  neap_dag *dag = program->dag;
  /* Both heaps are in plan order, so the earlier of the two tops is the earliest of all. */
  int step = pop(top_of(&dag->alone) < top_of(&dag->beside) ? &dag->alone : &dag->beside);
  before(program, step, state);
  execute(program, step, state, &dag->lane[0]);
  neap_run_let_signals_in(state);
  after(program, step, state);
}

/* Inside somebody's parallel region the dag runs on the calling thread alone: regions never
 * nest. */
static int count_lanes(const neap_dag *dag) {
  return neap_team_is_inside() ? 1 : NEAP_MIN(dag->n_lane, neap_threads());
}

/* Runs all steps, or until a stop is granted. Gives the lane whose fault counts, lane 0 when there
 * is none; borrowed until the next run. */
neap_lane *neap_dag_run(neap_program *program, neap_run_state *state) {
  neap_dag *dag = program->dag;
  int n_lane = count_lanes(dag);
  begin(dag);

  /* Regions and steps that run alone by turns. A region begins when the earliest ready step may
   * share it, so that plan order is kept as far as the threads allow. */
  while (dag->n_left > 0 && !dag->stopped) {
    if (n_lane > 1 && top_of(&dag->beside) < top_of(&dag->alone) && is_worth_region(dag))
      run_region(program, state, n_lane);
    else if (neap_run_must_stop(state, &dag->lane[0]))
      dag->stopped = true;
    else
      run_earliest(program, state);
  }

  /* Of several faults the one of the earliest step counts, so that the message does not depend on
   * timing more than it must. */
  neap_lane *first = &dag->lane[0];
  for (int l = 1; l < dag->n_lane; l++)
    if (dag->lane[l].fault.set &&
        (!first->fault.set || dag->lane[l].fault.instruction < first->fault.instruction))
      first = &dag->lane[l];
  return first;
}
