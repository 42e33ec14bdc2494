"""The batching handler: the files of this folder travel in a model's archive, next to its serving.properties.

DJL Serving puts a model's folder on Python's search path, and an archive holds plain files at its root only. Hence the
prefix `cohost_`, which keeps these modules from hiding others of the same name, and hence relative imports: `model.py`
declares its own folder to be a package, so the files that are imported as `cohost.handler.…` here run unchanged there.

    model.py               the entry point that DJL Serving calls
    cohost_restart.py, cohost_reload.py        the start of a process and its first call
    cohost_service.py      the path of one request: read, tokenise, queue, answer
    cohost_options.py      the keys of serving.properties
    cohost_request.py, cohost_texts.py         a body, its parameters and its texts; every 400 and 413
    cohost_tasks.py, cohost_classification.py, cohost_zero_shot.py, cohost_features.py    the tasks
    cohost_tokenizer.py    sequences of tokens, truncated at the model's true limit
    cohost_batches.py      the order of requests and the forming of batches, without torch
    cohost_engine.py, cohost_forward.py, cohost_packed.py        runs batches; a failing batch is bisected
    cohost_stream.py       copies to and from the device; small passes repeated from recordings
    cohost_watchdog.py     detects a hanging pass, answers the callers, ends the process
    cohost_loading.py, cohost_trials.py, cohost_device.py, cohost_warm_up.py      the steps before READY
    cohost_errors.py, cohost_memory.py         errors with their HTTP status; running out of memory
"""
