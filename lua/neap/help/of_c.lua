--- What neap.help says of the functions that C defines: all others have a comment above them in a
-- Lua file.
-- @module neap.help.of_c
return {
  ["neap.version"] = "neap.version: the version of Neap, a text such as \"0.9.0\"; neap.config() \z
    says what this build has.",
  ["neap.tensor"] = "neap.tensor(value [, dtype]) -> tensor of a number, a boolean or a nested \z
    table; f32, or bool, unless dtype says other.",
  ["neap.zeros"] = "neap.zeros(2, 3), neap.zeros { 2, 3, dtype = \"i64\" } -> tensor of zeros.",
  ["neap.ones"] = "neap.ones(2, 3), neap.ones { 2, 3, dtype = \"i64\" } -> tensor of ones.",
  ["neap.empty"] = "neap.empty(2, 3), neap.empty { 2, 3, dtype = \"i64\" } -> tensor whose values \z
    are whatever was in memory.",
  ["neap.full"] = "neap.full { 3, 4, value = 7 [, dtype =] } -> tensor of one value.",
  ["neap.like"] = "neap.like(x) -> tensor of zeros with the shape and dtype of x.",
  ["neap.arange"] = "neap.arange(n), neap.arange(first, stop [, step]) -> tensor of first, \z
    first + step, .. below stop, which is left out; arange(n) is 0 to n - 1. neap.linspace takes \z
    the last number in.",
  ["neap.linspace"] = "neap.linspace(first, last, n) -> tensor of n numbers from first to last.",
  ["neap.eye"] = "neap.eye(n) -> tensor (n,n), ones on the diagonal.",
  ["neap.load"] = "neap.load(path [, {map = \"r\"|\"c\"}]) -> {name = tensor}, {key = text} of \z
    a .safetensors or .npz file; of .npy, .png, .jpg and .wav one tensor, a picture as u8 \z
    (channels, height, width), sound as (channels, samples) with meta.rate; nil, message, code \z
    when it can't be read. With map the tensors are the file's bytes.",
  ["neap.save"] = "neap.save(path, {name = tensor} | tensor [, {meta = {key = text}}]) -> true; \z
    nil, message, code when it can't be written. By the path's ending: .safetensors and .npz hold \z
    tensors by name, .npy, .png, .jpg and .wav one. A picture is a u8 tensor (1 or 3, height, \z
    width), sound (channels, samples) needs meta = { rate = \"16000\" }.",
  ["neap.db_path"] = "neap.db_path() -> the path of the database, or nil where it is off.",
  ["neap.threads"] = "neap.threads([n]) -> how many threads work; with n that many from now on.",
  ["neap.clock"] = "neap.clock() -> seconds from some start, monotonic.",
  ["neap.use_db"] = "neap.use_db(db | false): programs made from now on record there, or nowhere.",
  ["neap.reset_peak"] = "neap.reset_peak(): the high-water marks start again from what is held \z
    now.",
  ["ws:feed"] = "ws:feed(name, tensor|number|table|string [, {share = true}]): sets a blob; with \z
    share it has the tensor's own bytes.",
  ["ws:fetch"] = "ws:fetch(name) -> a copy of a tensor, a string, or a scope.",
  ["ws:view"] = "ws:view(name) -> tensor, borrowed: reading it after a later run raises \z
    `released`, unless the blob has bytes of its own.",
  ["ws:has"] = "ws:has(name) -> whether the name means a blob, the workspace's own or one of \z
    those around it.",
  ["ws:create"] = "ws:create(name): declares a blob of no type yet, unless the name means one \z
    already.",
  ["ws:create_local"] = "ws:create_local(name): declares a blob of no type yet, which hides the \z
    parent's of that name.",
  ["ws:create_scope"] = "ws:create_scope(name) -> an empty scope, as a blob of that name.",
  ["ws:forward"] = "ws:forward(name [, target [, {skip = true}]]): from here on `name` means the \z
    parent's `target`.",
  ["ws:copy_forwarded"] = "ws:copy_forwarded() -> ws: forwarded tensors become local copies.",
  ["ws:seed"] = "ws:seed([n]) -> the seed that random ops draw by; with n that one from now on.",
  ["ws:step"] = "ws:step([n]) -> how many training runs have been; with n the next ones draw as \z
    after that many.",
  ["ws:remove"] = "ws:remove(name) -> whether there was one: the name goes; its bytes live on \z
    while a program or a view refers to them.",
  ["ws:rename"] = "ws:rename(from, to) -> ws: an own blob gets a name that means nothing yet.",
  ["ws:save"] = "ws:save(path [, {key = text}]) -> true, or nil, message, code: parameters, \z
    state, seed and step as a .safetensors file.",
  ["ws:load"] = "ws:load(path [, {map = 'r'|'c'}]) -> {key = text}, or nil, message, code: \z
    tensors replace blobs of their names; with map they are the file's.",
  ["ws:trim_pool"] = "ws:trim_pool() -> bytes: gives the pool of policy `pool` back; the next run \z
    takes it anew.",
  ["tensor:item"] = "tensor:item() -> the only element, as a number or a boolean.",
  ["tensor:at"] = "tensor:at(i, ..) -> the element at these positions, one for each dimension; -1 \z
    is the last.",
  ["tensor:set"] = "tensor:set(i, .., value): sets the element at these positions.",
  ["tensor:totable"] = "tensor:totable() -> nested tables of numbers; a number for a tensor \z
    without dimensions.",
  ["tensor:apply_"] = "tensor:apply_(f) -> tensor: each element becomes f(element), in row-major \z
    order; what f gives nil for stays.",
  ["tensor:map_"] = "tensor:map_(y, f) -> tensor: each element becomes f(its own, y's); the \z
    shapes are equal.",
  ["tensor:clone"] = "tensor:clone() -> a dense copy with bytes of its own.",
  ["tensor:to"] = "tensor:to(dtype) -> its elements cast; the same tensor where it has that dtype \z
    already.",
  ["tensor:contiguous"] = "tensor:contiguous() -> the tensor itself where it is dense, else a \z
    dense copy.",
  ["tensor:is_contiguous"] = "tensor:is_contiguous() -> whether its elements lie one behind the \z
    other, in row-major order.",
  ["tensor:copy_"] = "tensor:copy_(y) -> tensor: takes y's elements, cast and broadcast.",
  ["tensor:fill_"] = "tensor:fill_(number|boolean) -> tensor: every element becomes it.",
  ["tensor:zero_"] = "tensor:zero_() -> tensor: every element becomes 0.",
  ["tensor:equal"] = "tensor:equal(y) -> whether shape and numbers are the same, whatever the \z
    dtypes; NaN equals nothing.",
  ["tensor:close"] = "tensor:close(y [, {rtol = 1e-5, atol = 1e-8}]) -> whether |x - y| <= atol + \z
      rtol |y| everywhere, and the largest " .. "difference; NaN is close to NaN.",
  ["tensor:same"] = "tensor:same(y) -> whether both are the same elements of the same bytes.",
  ["tensor:hash"] = "tensor:hash() -> 32 hexadecimal digits of the elements' bits: equal for \z
    equal bits, NaN and -0 included.",
  ["tensor:size"] = "tensor:size() -> its shape as a list; tensor:size(d) -> the size of \z
    dimension d.",
  ["tensor:stride"] = "tensor:stride() -> its strides in elements as a list; tensor:stride(d) -> \z
    the one of dimension d.",
  ["tensor:dim"] = "tensor:dim() -> the number of its dimensions.",
  ["tensor:n_element"] = "tensor:n_element() -> the number of its elements.",
  ["tensor:n_bytes"] = "tensor:n_bytes() -> bytes of its elements, one behind the other.",
  ["tensor:narrow"] = "tensor:narrow(d, first, n) -> view of n positions of dimension d; x[{ {}, \z
    {first, last} }] is another word for it.",
  ["tensor:select"] = "tensor:select(d, i) -> view of dimension d at position i, without that \z
    dimension.",
  ["tensor:view"] = "tensor:view(..) -> the same bytes in another shape, one size of which may be \z
    -1; an error where strides allow none.",
  ["tensor:reshape"] = "tensor:reshape(..) -> another shape, one size of which may be -1: a view \z
    where strides allow one, else a copy.",
  ["tensor:transpose"] = "tensor:transpose(a, b) -> view in which dimensions a and b have changed \z
    places; without arguments the last two.",
  ["tensor:permute"] = "tensor:permute(3, 1, 2) -> view: dimension 1 of the result is dimension 3 \z
    of x, and so on.",
  ["tensor:expand"] = "tensor:expand(..) -> view in which dimensions of size 1 repeat; -1 keeps a \z
    size.",
  ["tensor:squeeze"] = "tensor:squeeze(d, ..) -> view without dimensions d, each of size 1; \z
    without arguments all of size 1 go.",
  ["tensor:unsqueeze"] = "tensor:unsqueeze(d, ..) -> view with dimensions of size 1 at positions \z
    d of the result.",
  ["tensor:apply"] = "tensor:apply is not there: tensor:apply_ changes the tensor, and its name \z
    says so.",
  ["tensor:map"] = "tensor:map is not there: tensor:map_ changes the tensor, and its name says so.",
  ["tensor:fill"] = "tensor:fill is not there: tensor:fill_ changes the tensor, and its name says \z
    so.",
  ["tensor:copy"] = "tensor:copy is not there: tensor:copy_ changes the tensor, and its name says \z
    so.",
  ["tensor:zero"] = "tensor:zero is not there: tensor:zero_ changes the tensor, and its name says \z
    so.",
  ["tensor:double"] = "tensor:double() -> its elements as f64.",
  ["tensor:long"] = "tensor:long() -> its elements as i64.",
  ["program:run"] = "program:run([n]) -> program: n runs, 1 unless told, on what is in its \z
    workspace's blobs.",
  ["program:stats"] = "program:stats() -> { n_step, last_ns, min_ns, median_ns, held_bytes (of \z
    its workspace, as ws:held_bytes), process_bytes, .. }.",
  ["program:times"] = "program:times() -> { step, n_call, min_ns, median_ns, p95_ns, last_ns, \z
    total_ns, gap_ns, thread } per step of the plan, over all runs; the last calls too when \z
    compiled with profile = true. nil of a dynamic program.",
  ["program:pool"] = "program:pool() -> what the pool of the program's workspace holds and how \z
    far the last run used it; nil where addresses are planned.",
  ["program:metric"] = "program:metric(name, step, value): a row of the run, once it is recorded.",
  ["program:record"] = "program:record([status]) -> run_id: writes the run's row; nil, message, \z
    code when the database fails.",
  ["program:frames_bytes"] = "program:frames_bytes() -> bytes that its loops without a maximum \z
    hold from run to run.",
  ["program:trim"] = "program:trim() -> bytes: gives the frames of loops without a maximum back.",
  ["program:close"] = "program:close(): gives back what it holds; its blobs live on in the \z
    workspace.",
  ["plan:text"] = "plan:text() -> the plan as rows that read back, as the database keeps them.",
  ["plan:graph_text"] = "plan:graph_text() -> the graph that was planned, laid out for people.",
  ["plan:verify"] = "plan:verify() -> true; raises `plan`, naming the two values, where live \z
    ranges and bytes overlap.",
  ["scope:clear"] = "scope:clear() -> scope: without frames.",
  ["scope:empty"] = "scope:empty() -> whether it has no frame.",
  ["scope:check_stack"] = "scope:check_stack() -> scope; raises where its frames do not follow \z
    one another.",
  ["scope:check_bindings_match"] = "scope:check_bindings_match(bindings [, {gradient = true}]) -> \z
    scope; raises where the top frame has other bindings.",
  ["scope:held_bytes"] = "scope:held_bytes() -> bytes of its frames, those that are kept for the \z
    next use among them.",
  ["ws:arena_bytes"] = "ws:arena_bytes() -> bytes of the region that its programs share.",
  ["ws:held_bytes"] = "ws:held_bytes() -> bytes that the workspace owns: blobs, arena, constants, \z
    pool, banks.",
  ["ws:poison"] = "ws:poison(on): whether bytes that nothing needs any more are overwritten, so \z
    that what reads them too late shows.",
  ["ws:drop_gradients"] = "ws:drop_gradients() -> bytes: gives the gradients of parameters back; \z
    the next run that computes them makes them again.",
  ["net:text"] = "net:text([{lines = false}]) -> the net as text that neap.net reads; lines = \z
    false leaves out where ops were written.",
  ["net:clone"] = "net:clone() -> a net of its own that is equal.",
  ["net:rename"] = "net:rename { old = \"new\", .. } -> another net, equal but for these names of \z
    blobs.",
  ["db:backup"] = "db:backup(path) -> true, or nil, message, code: a whole copy of the database, \z
    while others write to it.",
  ["db:merge"] = "db:merge(path) -> plans and runs added, or nil, message, code: what another \z
    file has and this one has not.",
  ["db:vacuum"] = "db:vacuum() -> true, or nil, message, code: gives the room of what was removed \z
    back to the disk.",
  ["db:close"] = "db:close(): closes the database; running programs keep what they have to write \z
    in memory.",
}
