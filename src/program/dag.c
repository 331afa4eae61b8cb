/* dag.c: the schedule `dag`. One OpenMP parallel region around the whole run; each thread takes the ready instruction that
 * comes first in plan order, runs it alone (kernels were chosen for one thread), and releases its successors.
 *
 * Data structure: dependency counts by step and successor lists from the graph's edges, a binary heap of ready steps, one
 * mutex. INVARIANT: a step enters the heap when all its predecessors have run; the plan is safe in every order that allows.
 */
#include "program/program_int.h"

#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

struct neap_dag {
  int n_step, n_lane;
  neap_lane *lane;
  int *n_before;     /* predecessors by step */
  int *waiting;      /* of n_before, in this run */
  int *first, *list; /* successors of step s: list[first[s] .. first[s+1]) */
  int *heap, n_heap; /* ready steps, the earliest on top */
  int n_left;
  bool stopped;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  neap_arena arena;
};

/* ---- heap ------------------------------------------------------------------------------------------------------- */

/* Room for every step was made with the heap, and a step enters once. With the mutex held, or before the threads begin. */
static void push(neap_dag *dag, int step) {
  int at = dag->n_heap++;
  for (; at > 0 && dag->heap[(at - 1) / 2] > step; at = (at - 1) / 2) dag->heap[at] = dag->heap[(at - 1) / 2];
  dag->heap[at] = step;
}

/* The earliest ready step: plan order is the order that the planner knows to need the least bytes. With the mutex held, and not
 * of an empty heap. */
static int pop(neap_dag *dag) {
  int top = dag->heap[0], last = dag->heap[--dag->n_heap], at = 0;
  for (int child; (child = 2 * at + 1) < dag->n_heap; at = child) {
    if (child + 1 < dag->n_heap && dag->heap[child + 1] < dag->heap[child]) child++;
    if (dag->heap[child] >= last) break;
    dag->heap[at] = dag->heap[child];
  }
  dag->heap[at] = last;
  return top;
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

/* Successor lists by counting sort over the edges: O(steps + edges). `waiting` serves as room; begin() sets it for each run. */
static void fill_successors(neap_dag *dag, const neap_graph *graph, const int *step_of) {
  for (int e = 0; e < graph->n_edge; e++) {
    dag->first[step_of[graph->edge[e].from] + 1]++;
    dag->n_before[step_of[graph->edge[e].to]]++;
  }
  for (int s = 0; s < dag->n_step; s++) dag->first[s + 1] += dag->first[s];
  neap_copy_bytes(dag->waiting, dag->first, (size_t)dag->n_step * sizeof *dag->waiting); /* as write positions */
  for (int e = 0; e < graph->n_edge; e++) dag->list[dag->waiting[step_of[graph->edge[e].from]]++] = step_of[graph->edge[e].to];
}

/* Lanes for as many threads as there are now; a later, larger setting is cut to this. */
neap_status neap_dag_new(neap_program *program, neap_error *error) {
  const neap_graph *graph = program->graph;
  size_t n = (size_t)graph->n_node;
  neap_dag *dag = neap_alloc_zeroed(sizeof *dag);
  if (dag == NULL) return neap_fail_memory(error, sizeof *dag, "a dag schedule");
  program->dag = dag; /* freed with the program, also after a failure below */
  pthread_mutex_init(&dag->mutex, NULL);
  pthread_cond_init(&dag->wake, NULL);
  dag->n_step = graph->n_node;
  dag->n_lane = neap_threads();
  dag->lane = neap_arena_alloc(&dag->arena, (size_t)dag->n_lane * sizeof *dag->lane);
  dag->n_before = neap_arena_alloc(&dag->arena, n * sizeof(int));
  dag->waiting = neap_arena_alloc(&dag->arena, n * sizeof(int));
  dag->first = neap_arena_alloc(&dag->arena, (n + 1) * sizeof(int));
  dag->list = neap_arena_alloc(&dag->arena, (size_t)graph->n_edge * sizeof(int));
  dag->heap = neap_arena_alloc(&dag->arena, n * sizeof(int));
  int *step_of = neap_arena_alloc(&dag->arena, n * sizeof(int));
  if (dag->lane == NULL || dag->n_before == NULL || dag->waiting == NULL || dag->first == NULL || dag->list == NULL ||
      dag->heap == NULL || step_of == NULL)
    return neap_fail_memory(error, n * sizeof(int), "a dag schedule");
  for (int s = 0; s < dag->n_step; s++) step_of[program->plan->order[s]] = s;
  fill_successors(dag, graph, step_of);
  return NEAP_OK;
}

void neap_dag_free(neap_dag *dag) {
  if (dag == NULL) return;
  pthread_cond_destroy(&dag->wake);
  pthread_mutex_destroy(&dag->mutex);
  neap_arena_fini(&dag->arena);
  neap_free(dag);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

/* Sets the run context to the start: nothing has run, the steps without predecessors are ready. */
static void begin(neap_dag *dag) {
  memset(dag->lane, 0, (size_t)dag->n_lane * sizeof *dag->lane);
  neap_copy_bytes(dag->waiting, dag->n_before, (size_t)dag->n_step * sizeof *dag->waiting);
  dag->n_heap = 0;
  dag->n_left = dag->n_step;
  dag->stopped = false;
  for (int s = 0; s < dag->n_step; s++)
    if (dag->n_before[s] == 0) push(dag, s);
}

/* With the mutex held: steps whose last predecessor has run become ready. O(log n) for each of them. */
static void release_successors(neap_dag *dag, int step) {
  for (int k = dag->first[step]; k < dag->first[step + 1]; k++)
    if (--dag->waiting[dag->list[k]] == 0) push(dag, dag->list[k]);
}

/* With the mutex held: until some step may be ready. The calling thread wakes now and then, because signals come in through it
 * alone, and what the others run may be a loop without end. */
static void wait_for_work(neap_dag *dag, neap_run_state *state, const neap_lane *lane) {
  enum { EVERY_NS = 20000000, SECOND_NS = 1000000000 };
  if (lane->thread != 0) {
    pthread_cond_wait(&dag->wake, &dag->mutex);
    return;
  }
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += EVERY_NS;
  if (until.tv_nsec >= SECOND_NS) until.tv_sec++, until.tv_nsec -= SECOND_NS;
  if (pthread_cond_timedwait(&dag->wake, &dag->mutex, &until) == 0) return;
  pthread_mutex_unlock(&dag->mutex);
  neap_run_let_signals_in(state);
  pthread_mutex_lock(&dag->mutex);
}

/* What each thread does. The mutex is held but while an instruction runs. Others are woken when there is more than the one step
 * that this thread will take itself, or when nothing is left, and once more at the end, for those that wait while it stops. */
static void work(neap_program *program, neap_run_state *state, neap_lane *lane) {
  neap_dag *dag = program->dag;
  pthread_mutex_lock(&dag->mutex);
  while (!dag->stopped && dag->n_left > 0) {
    if (neap_run_must_stop(state, lane)) {
      dag->stopped = true;
      break;
    }
    if (dag->n_heap == 0) {
      wait_for_work(dag, state, lane);
      continue;
    }
    int step = pop(dag);
    pthread_mutex_unlock(&dag->mutex);
    neap_program_execute(program, step, state, lane);
    if (lane->thread == 0) neap_run_let_signals_in(state);
    pthread_mutex_lock(&dag->mutex);
    dag->n_left--;
    release_successors(dag, step);
    if (dag->n_heap > 1 || dag->n_left == 0) pthread_cond_broadcast(&dag->wake);
  }
  pthread_cond_broadcast(&dag->wake);
  pthread_mutex_unlock(&dag->mutex);
}

/* Runs all steps, or until a stop is granted. Gives the lane whose fault counts, lane 0 when there is none; borrowed until the
 * next run. Inside somebody's parallel region the dag runs on the calling thread alone: regions never nest. */
neap_lane *neap_dag_run(neap_program *program, neap_run_state *state) {
  neap_dag *dag = program->dag;
  begin(dag);
#ifdef _OPENMP
  int n_lane = omp_in_parallel() ? 1 : NEAP_MIN(dag->n_lane, neap_threads());
#pragma omp parallel num_threads(n_lane)
  {
    neap_lane *lane = &dag->lane[omp_get_thread_num()];
    lane->thread = omp_get_thread_num();
    work(program, state, lane);
  }
#else
  work(program, state, &dag->lane[0]);
#endif
  /* Of several faults the one of the earliest step counts, so that the message does not depend on timing more than it must. */
  neap_lane *first = &dag->lane[0];
  for (int l = 1; l < dag->n_lane; l++)
    if (dag->lane[l].fault.set && (!first->fault.set || dag->lane[l].fault.instruction < first->fault.instruction))
      first = &dag->lane[l];
  return first;
}
