/* rows.c: rows of any kind as tables, by the columns that neap.h describes, and the descriptions
 * themselves for who shows them. */
#include "lua/binding.h"

typedef struct held {
  neap_rows *rows;
} held;

static void free_cursor(lua_State *L, void *at) {
  held *h = at;
  (void)L;
  neap_rows_free(h->rows);
  h->rows = NULL;
}

neap_rows **neap_lua_new_cursor(lua_State *L) {
  held *h = neap_lua_new(L, sizeof *h, NEAP_LUA_CURSOR, free_cursor);
  return &h->rows;
}

/* Pushes what a cell holds, as Lua counts; false, and nothing pushed, where there is nothing. */
static bool push_cell(lua_State *L, const neap_datum *cell) {
  switch (cell->type) {
    case NEAP_DATUM_NONE: return false;
    case NEAP_DATUM_INTEGER: lua_pushinteger(L, cell->integer); break;
    case NEAP_DATUM_REAL: lua_pushnumber(L, cell->real); break;
    case NEAP_DATUM_BOOL: lua_pushboolean(L, cell->integer != 0); break;
    case NEAP_DATUM_TEXT: lua_pushstring(L, cell->text); break;
    case NEAP_DATUM_NAMES:
    case NEAP_DATUM_INDICES:
    case NEAP_DATUM_NUMBERS:
      /* Lists. Places count from 1 in Lua; numbers and names are as they are. */
      lua_createtable(L, cell->n, 0);
      for (int i = 0; i < cell->n; i++) {
        if (cell->type == NEAP_DATUM_NAMES)
          lua_pushstring(L, cell->names[i]);
        else if (cell->type == NEAP_DATUM_NUMBERS)
          lua_pushinteger(L, cell->numbers[i]);
        else
          lua_pushinteger(L, cell->indices[i] + 1);
        lua_rawseti(L, -2, i + 1);
      }
      break;
  }
  return true;
}

void neap_lua_push_shown(lua_State *L, neap_row_kind kind, const void *row, unsigned mask,
                         unsigned shown) {
  const neap_column *column;
  /* The table, a cell, a list and its item; callers may be deep in a tree of subnets. */
  luaL_checkstack(L, 6, "a row");
  lua_createtable(L, 0, 24);
  for (int i = 0; (column = neap_column_at(kind, i)) != NULL; i++) {
    /* A cell that has nothing to say is left out: the field reads nil. */
    if ((column->shown & mask) != shown) continue;
    neap_datum cell = neap_datum_of(column, row);
    if (push_cell(L, &cell)) lua_setfield(L, -2, column->name);
  }
}

void neap_lua_push_row(lua_State *L, neap_row_kind kind, const void *row) {
  neap_lua_push_shown(L, kind, row, 0, 0);
}

void neap_lua_push_rows(lua_State *L, neap_rows *rows, neap_row_kind kind) {
  const void *row;
  lua_newtable(L);
  for (lua_Integer i = 1;; i++) {
    /* The row is the cursor's until the next call: it is a table by then. */
    NEAP_LUA_TRY(L, neap_rows_next(rows, &row, &error));
    if (row == NULL) return;
    neap_lua_push_row(L, kind, row);
    lua_rawseti(L, -2, i);
  }
}

static const char *type_name(neap_column_type type) {
  switch (type) {
    case NEAP_COLUMN_NUMBER: return "number";
    case NEAP_COLUMN_INDEX: return "index";
    case NEAP_COLUMN_REAL: return "real";
    case NEAP_COLUMN_BOOL: return "boolean";
    case NEAP_COLUMN_TEXT: return "text";
    case NEAP_COLUMN_NAMES: return "names";
    case NEAP_COLUMN_INDICES: return "indices";
    case NEAP_COLUMN_NUMBERS: return "numbers";
    case NEAP_COLUMN_KEY: return "text";
  }
  return "?";
}

/* rows() -> by the name of each kind of row: its columns in their order, each {name =, type =, unit
 * =, doc =} and where it is shown {store =, zero =, print =, some =, run =}; and `doc` */
static int rows(lua_State *L) {
  const char *name, *doc;
  lua_newtable(L);
  for (unsigned kind = 0; (name = neap_row_kind_name((neap_row_kind)kind, &doc)) != NULL; kind++) {
    /* From below: all kinds, this kind, one column. lua_rawseti and lua_setfield take the top. */
    const neap_column *column;
    lua_newtable(L);
    neap_lua_set_text(L, "doc", doc);
    for (int i = 0; (column = neap_column_at((neap_row_kind)kind, i)) != NULL; i++) {
      lua_createtable(L, 0, 9);
      neap_lua_set_text(L, "name", column->name);
      neap_lua_set_text(L, "type", type_name(column->type));
      neap_lua_set_text(L, "unit", column->unit);
      neap_lua_set_text(L, "doc", column->doc);
      neap_lua_set_bool(L, "store", (column->shown & NEAP_SHOWN_STORE) != 0);
      neap_lua_set_bool(L, "zero", (column->shown & NEAP_SHOWN_ZERO) != 0);
      neap_lua_set_bool(L, "print", (column->shown & NEAP_SHOWN_PRINT) != 0);
      neap_lua_set_bool(L, "some", (column->shown & NEAP_SHOWN_SOME) != 0);
      neap_lua_set_bool(L, "run", (column->shown & NEAP_SHOWN_RUN) != 0);
      lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, name);
  }
  return 1;
}

void neap_lua_open_rows(lua_State *L) {
  static const neap_lua_reg functions[] = {{"rows", rows, 0}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
