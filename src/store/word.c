/* word.c: short texts as numbers: a name that thousands of rows have stands in the file once.
 *
 * A table of the words that were asked for goes beside the one in the file, for as long as one plan
 * is added: most texts of a plan come again and again. It lies by hash, in open addressing; the
 * texts lie in one buffer.
 *
 * INVARIANT: at least a quarter of the slots is free, so that a search ends.
 */
#include "store/store_int.h"

#include <string.h>

/* word_id 0: a free slot. SQLite numbers rows from 1. */
typedef struct neap_word_slot {
  size_t at; /* of the text, in the buffer */
  int64_t word_id;
} slot;

void neap_words_init(neap_words *words, neap_store *store, const char *lost) {
  *words = (neap_words){
    .find = neap_sql_new(store, "SELECT word_id FROM plan_word WHERE text = ?", lost),
    .add = neap_sql_new(store, "INSERT INTO plan_word (text) VALUES (?) RETURNING word_id", lost)};
}

void neap_words_fini(neap_words *words) {
  neap_sql_fini(&words->find);
  neap_sql_fini(&words->add);
  neap_buffer_fini(&words->text);
  neap_free(words->slot);
}

/* The slot that has `text`, or the free one where it would be. */
static slot *find_slot(const neap_words *words, const char *text) {
  uint64_t hash = neap_hash_bytes(text, strlen(text)).low;
  for (size_t i = hash % words->n_slot;; i = (i + 1) % words->n_slot) {
    slot *at = &words->slot[i];
    if (at->word_id == 0 || strcmp(words->text.text + at->at, text) == 0) return at;
  }
}

/* Twice the slots, and all words into them anew. */
static bool grow(neap_words *words) {
  neap_words larger = *words;
  larger.n_slot = NEAP_MAX(words->n_slot * 2, 1024);
  larger.slot = neap_alloc_zeroed(larger.n_slot * sizeof *larger.slot);
  if (larger.slot == NULL) return false;
  for (size_t i = 0; i < words->n_slot; i++)
    if (words->slot[i].word_id != 0)
      *find_slot(&larger, words->text.text + words->slot[i].at) = words->slot[i];
  neap_free(words->slot);
  *words = larger;
  return true;
}

/* The word's row in the file, made where there is none. */
static neap_status find_row(neap_words *words, const char *text, int64_t *word_id,
                            neap_error *error) {
  bool row;
  neap_sql_text(&words->find, text);
  NEAP_TRY(neap_sql_step(&words->find, &row, error));
  if (row) {
    *word_id = sqlite3_column_int64(words->find.stmt, 0);
    return neap_sql_run(&words->find, error);
  }
  neap_sql_text(&words->add, text);
  NEAP_TRY(neap_sql_step(&words->add, &row, error));
  *word_id = sqlite3_column_int64(words->add.stmt, 0);
  return neap_sql_run(&words->add, error);
}

neap_status neap_words_find(neap_words *words, const char *text, int64_t *word_id,
                            neap_error *error) {
  if (words->n * 4 >= words->n_slot * 3 && !grow(words))
    return neap_fail_memory(error, 2 * words->n_slot * sizeof(slot), "words of a plan");
  slot *at = find_slot(words, text);
  if (at->word_id != 0) {
    *word_id = at->word_id;
    return NEAP_OK;
  }

  int64_t id = 0;
  NEAP_TRY(find_row(words, text, &id, error));
  size_t begin = words->text.n;
  neap_buffer_add_n(&words->text, text, strlen(text) + 1);
  if (words->text.failed) return neap_fail_memory(error, strlen(text), "words of a plan");
  *at = (slot){.at = begin, .word_id = id};
  words->n++;
  *word_id = id;
  return NEAP_OK;
}
