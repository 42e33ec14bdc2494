"""The batching handler: the files of this folder travel in a model's archive, next to its serving.properties.

DJL Serving puts a model's folder on Python's search path, and an archive holds plain files at its root only. Hence the
prefix `cohost_`, which keeps these modules from hiding others of the same name, and hence relative imports: `model.py`
declares its own folder to be a package, so the very files that are imported as `cohost.handler.…` here run there.

    model.py               what DJL Serving calls
    cohost_restart.py, cohost_reload.py        a process's start and first call: what may end it, and what must not fail
    cohost_service.py      one request's way: read, tokenise, queue, answer
    cohost_options.py      the keys of serving.properties
    cohost_request.py, cohost_texts.py, cohost_parameters.py     a body, its texts, its parameters; every 400 and 413
    cohost_tasks.py, cohost_classification.py, cohost_zero_shot.py, cohost_features.py    what a task asks and answers
    cohost_tokenizer.py, cohost_length.py      sequences of tokens, cut at the model's true limit
    cohost_queue.py, cohost_batches.py         who is next, and with whom: plain Python, no torch
    cohost_engine.py, cohost_forward.py, cohost_packed.py        batches through the model, errors halved away
    cohost_watchdog.py     a pass that hangs, callers that are answered, and the end of the process
    cohost_loading.py, cohost_trials.py, cohost_precision.py, cohost_device.py, cohost_warm_up.py      before READY
    cohost_errors.py, cohost_memory.py, cohost_counters.py, cohost_json.py
"""
